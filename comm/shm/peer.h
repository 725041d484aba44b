// SPDX-License-Identifier: Apache-2.0
// One other process of the host: the socket to it, the ring of doorbells each way, and its memory as it is mapped here.
//
// The socket carries what is rare: the descriptors of segments, before the first doorbell that names them; a call that
// wakes a process which sleeps; a goodbye. Its end without a goodbye is the end of the process.
// Invariant: whatever the other process writes, it can only be lost, and no memory but its own is ever read for it.
// Thread rule: any thread, but hear(), beat(), count_silence() and unreported_loss() are for the transport's own one,
// as is give_up(). Locks: take_, then send_, then loss_.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/shm/arena.h"
#include "comm/shm/ring.h"
#include "comm/shm/socket.h"

namespace sluice::shm {

class Peer {
 public:
  // What a doorbell means. `data`: the bytes that it names, mapped here. Null, or what is wrong with it.
  using Answer = std::function<const char*(Peer&, const Doorbell&, const std::byte* data)>;

  Peer(int process, Shared page, const Arena& arena, Answer answer, std::function<void()> on_end);
  int page_fd() const { return page_.fd.get(); }
  // Before anything else. False: what it gave us is no page.
  bool meet(Fd socket, Fd page);

  int process() const { return process_; }
  bool here() const { return state_.load() == State::here; }
  std::string gone_text() const;  // why it is not

  // Nothing happens when it is gone. `data` lies in the arena, or there are no bytes.
  void ring(Doorbell bell, const std::byte* data = nullptr);
  enum class Turn { wait, skip };  // while another thread takes
  bool take(Turn turn);            // some of what has arrived; false: there was nothing
  bool waiting() const { return here() && reader_->waiting(); }
  void set_asleep(uint64_t generation) { mine().asleep.store(generation); }
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

  int socket() const { return socket_.get(); }
  void hear();   // own thread: what the socket says
  void flush();  // doorbells that had no room
  void beat() { mine().beats.fetch_add(1, std::memory_order_relaxed); }
  // Own thread: its heart has not beaten for so long; time in which we did not run ourselves is no silence of others.
  void count_silence(int passed_ms, int limit_ms, int first_limit_ms);
  void lose(const std::string& why) { end(State::lost, why); }
  std::optional<std::string> unreported_loss();  // own thread
  void give_up();                                // own thread, once it is lost: should it live, it learns so too
  void close();                                  // says goodbye; what is mapped stays until the end

 private:
  enum class State { here, left, lost };
  struct Note {  // over the socket
    enum class Kind : uint32_t { call, segment, goodbye } kind = Kind::call;
    uint32_t segment = 0;
    uint64_t bytes = 0;
  };

  void end(State state, const std::string& why);
  Page& mine() { return *reinterpret_cast<Page*>(page_.memory.data()); }
  void call();
  bool pass_segments(uint32_t upto);
  void read_notes();
  bool hear_note(const Note& note, const Fd& passed);
  const std::byte* locate(const Doorbell& bell);
  void answer(const Doorbell& bell);

  const int process_;
  const Arena& arena_;
  const Answer answer_;
  const std::function<void()> on_end_;
  Shared page_;
  Mapping theirs_;
  Fd socket_;
  std::atomic<State> state_{State::here};

  std::mutex send_;
  std::optional<Writer> writer_;
  const Page* their_page_ = nullptr;
  uint64_t called_ = 0;  // the value of `asleep` that it was last called for
  uint32_t segments_passed_ = 0;
  std::atomic<int64_t> bytes_sent_{0};

  std::mutex take_;
  std::optional<Reader> reader_;
  std::vector<Mapping> segments_;
  bool ended_ = false, said_goodbye_ = false;

  mutable std::mutex loss_;
  std::string why_;
  bool reported_ = false;

  uint64_t beats_ = 0;
  int silent_ms_ = 0;
};

}  // namespace sluice::shm
