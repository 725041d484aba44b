// SPDX-License-Identifier: Apache-2.0
#include "comm/shm/peer.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/error.h"

namespace sluice::shm {

namespace {
constexpr int batch_max = 64;          // doorbells taken before others get their turn
constexpr size_t segments_max = 4096;  // of one process
constexpr int passing_ms_max = 2000;   // a peer that reads nothing for so long gets no segments
}  // namespace

Peer::Peer(int process, Shared page, const Arena& arena, Answer answer, std::function<void()> on_end)
    : process_(process),
      arena_(arena),
      answer_(std::move(answer)),
      on_end_(std::move(on_end)),
      page_(std::move(page)) {}

bool Peer::meet(Fd socket, Fd page) {
  auto theirs = map_shared_memory(page, sizeof(Page));
  if (!theirs) return false;
  theirs_ = std::move(*theirs);
  their_page_ = reinterpret_cast<const Page*>(theirs_.data());
  socket_ = std::move(socket);
  page_.fd.reset();
  writer_.emplace(mine(), *their_page_);
  reader_.emplace(mine(), *their_page_);
  return true;
}

// ---- sending --------------------------------------------------------------------------------------------------------

void Peer::ring(Doorbell bell, const std::byte* data) {
  if (auto spot = arena_.find(data, bell.bytes)) {
    bell.segment = spot->segment;
    bell.offset = spot->offset;
  } else {
    check(bell.bytes == 0, "what is sent between processes of one host must lie in the transport's memory()");
  }
  std::lock_guard lock(send_);
  if (!here()) return;
  if (bell.segment != no_segment && bell.segment >= segments_passed_ && !pass_segments(bell.segment)) return;
  if (bell.kind == Kind::arrival)
    bytes_sent_.store(bytes_sent_.load(std::memory_order_relaxed) + int64_t(bell.bytes), std::memory_order_relaxed);
  if (!writer_->push(bell)) return lose("its count of doorbells taken is none that it can have");
  call();
}

// It writes no memory of ours, so it cannot take its wish back: one call for each value.
void Peer::call() {
  uint64_t asleep = their_page_->asleep.load();
  if (asleep % 2 == 0 || asleep == called_) return;
  called_ = asleep;
  send_message(socket_, bytes_of(Note{}));  // no room: it has notes to read, and so is awake
}

bool Peer::pass_segments(uint32_t upto) {
  while (segments_passed_ <= upto) {
    auto part = arena_.part(segments_passed_);
    if (send_message(socket_, bytes_of(Note{Note::Kind::segment, segments_passed_, part.bytes}), part.fd)) {
      ++segments_passed_;
      continue;
    }
    if (errno != EAGAIN) return false;  // its end: the own thread hears it
    pollfd room{socket_.get(), POLLOUT, 0};
    if (::poll(&room, 1, passing_ms_max) == 0) {
      lose("it reads nothing from its socket");
      return false;
    }
  }
  return true;
}

void Peer::flush() {
  std::lock_guard lock(send_);
  if (!here() || !writer_->blocked()) return;
  if (!writer_->flush()) return lose("its count of doorbells taken is none that it can have");
  call();
}

// ---- taking ---------------------------------------------------------------------------------------------------------

bool Peer::take(Turn turn) {
  std::unique_lock lock(take_, std::defer_lock);
  if (turn == Turn::wait)
    lock.lock();
  else if (!reader_->waiting() || !lock.try_lock())
    return false;
  int taken = 0;
  for (Doorbell bell; taken < batch_max && here() && reader_->pop(bell); ++taken) answer(bell);
  if (taken > 0 && here() && reader_->should_call()) {
    std::lock_guard sending(send_);
    if (here()) send_message(socket_, bytes_of(Note{}));
  }
  return taken > 0;
}

void Peer::answer(const Doorbell& bell) {
  const std::byte* data = nullptr;
  if (bell.segment != no_segment) {
    data = locate(bell);
    if (!data) return lose("it names memory that it has not shared");
  } else if (bell.bytes != 0) {
    return lose("it names memory that it has not shared");
  }
  if (const char* wrong = answer_(*this, bell, data)) lose(wrong);
}

const std::byte* Peer::locate(const Doorbell& bell) {
  if (bell.segment >= segments_.size()) read_notes();
  if (bell.segment >= segments_.size()) return nullptr;
  const Mapping& segment = segments_[bell.segment];
  if (bell.offset > segment.bytes() || bell.bytes > segment.bytes() - bell.offset) return nullptr;
  return segment.data() + bell.offset;
}

void Peer::read_notes() {
  while (here() && !ended_) {
    Note note;
    Fd passed;
    size_t size = 0;
    auto received = receive_message(socket_, std::as_writable_bytes(std::span(&note, 1)), size, &passed);
    if (received == Received::nothing) return;
    if (received == Received::end || size != sizeof note)
      ended_ = true;
    else if (!hear_note(note, passed))
      return lose("its socket says what makes no sense");
  }
}

bool Peer::hear_note(const Note& note, const Fd& passed) {
  switch (note.kind) {
    case Note::Kind::call: return true;
    case Note::Kind::goodbye: said_goodbye_ = true; return true;
    case Note::Kind::segment: break;
    default: return false;
  }
  if (note.segment != segments_.size() || segments_.size() >= segments_max) return false;
  auto segment = map_shared_memory(passed, note.bytes);
  if (segment) segments_.push_back(std::move(*segment));
  return segment.has_value();
}

void Peer::hear() {
  std::lock_guard lock(take_);
  read_notes();
  if (!ended_ || !here()) return;
  // What it had rung before its end still counts.
  for (Doorbell bell; here() && reader_->pop(bell);) answer(bell);
  if (said_goodbye_)
    end(State::left, "it has closed its side");
  else
    end(State::lost, "its process has ended, or has given this one up");
}

// ---- its end and ours -----------------------------------------------------------------------------------------------

void Peer::count_silence(int passed_ms, int limit_ms, int first_limit_ms) {
  uint64_t beats = their_page_->beats.load(std::memory_order_relaxed);
  silent_ms_ = beats == beats_ ? silent_ms_ + passed_ms : 0;
  beats_ = beats;
  if (here() && silent_ms_ > (beats == 0 ? first_limit_ms : limit_ms))
    lose("it has said nothing for " + std::to_string(silent_ms_) + " ms: it is stopped, or its machine is overloaded");
}

void Peer::end(State state, const std::string& why) {
  {
    std::lock_guard lock(loss_);
    if (!here()) return;
    why_ = why;
    reported_ = state == State::left;  // no loss: it said so itself
    state_ = state;
  }
  on_end_();
}

std::optional<std::string> Peer::unreported_loss() {
  std::lock_guard lock(loss_);
  if (here() || std::exchange(reported_, true)) return std::nullopt;
  return why_;
}

void Peer::give_up() { shutdown(socket_.get(), SHUT_RDWR); }

std::string Peer::gone_text() const {
  std::lock_guard lock(loss_);
  return "process " + std::to_string(process_) + " is gone: " + why_;
}

void Peer::close() {
  std::lock_guard taking(take_);
  std::lock_guard sending(send_);
  if (here()) send_message(socket_, bytes_of(Note{Note::Kind::goodbye}));
  end(State::left, "this side is closed");
  socket_.reset();
}

}  // namespace sluice::shm
