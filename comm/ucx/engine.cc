// SPDX-License-Identifier: Apache-2.0
// The thread's life: connecting, turns, sleep, pings, lost peers and the end. messages.cc is what goes in and out.
#include "comm/ucx/engine.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace sluice::ucx {

namespace {

constexpr int ticks_of_silence = 6;
constexpr int connect_silences = 5;  // others may start much later
constexpr auto bye_max = std::chrono::milliseconds(500);
constexpr int empty_turns_max = 100;  // wake-ups for nothing before the thread rests for a moment

}  // namespace

Engine::Engine(const ProcessGroup& group, const std::string& interface, const UcxOptions& options, WireEnds& ends)
    : group_(group),
      options_(options),
      ends_(ends),
      tick_every_(std::chrono::microseconds(int64_t(group.silence_ms_max) * 1000 / ticks_of_silence)) {
  if (group.process < 0 || group.process >= group.processes || group.silence_ms_max <= 0)
    throw Error(Code::value, "process " + std::to_string(group.process) + " of " + std::to_string(group.processes) +
                                 " cannot have a transport");
  port_ = std::make_unique<Port>(*this, interface, group.processes);
  address_ = wrap_address(group.process, port_->address());
  for (int p = 0; p < group.processes; ++p)
    peers_.push_back(p == group.process ? nullptr : std::make_unique<Peer>(group_, p, options.chunk_bytes));
  next_tick_ = Clock::now() + tick_every_;
  thread_ = std::thread([this] { run(); });
}

void Engine::connect(const std::vector<std::string>& addresses) {
  if (addresses.size() != peers_.size())
    throw Error(Code::value, "there are " + std::to_string(peers_.size()) + " processes, and the addresses of " +
                                 std::to_string(addresses.size()));
  std::vector<std::string> wanted(addresses.size());
  for (size_t p = 0; p < addresses.size(); ++p)
    if (peers_[p] && !addresses[p].empty()) wanted[p] = unwrap_address(int(p), addresses[p]);
  std::unique_lock lock(mutex_);
  check(!connecting_, "a transport is connected twice");
  if (closed_) throw Error(Code::failed, "a closed transport is connected");
  connecting_ = true;
  addresses_ = std::move(wanted);
  inbox_.push(connect_task_);
  auto finished = [&] { return connect_done_ || closed_ || !connect_failure_.empty(); };
  auto patience = std::chrono::milliseconds(connect_silences * int64_t(group_.silence_ms_max));
  bool in_time = connected_.wait_for(lock, patience, finished);
  if (connect_done_) return;
  if (!connect_failure_.empty()) throw Error(Code::failed, connect_failure_);
  if (in_time) throw Error(Code::cancelled, "the transport was closed while it was being connected");
  std::string who;
  for (int p : unproved_) who += (who.empty() ? "process " : ", process ") + std::to_string(p);
  throw Error(Code::failed,
              "no answer with this run's key in " + std::to_string(patience.count()) + " ms over UCX from " + who, {},
              "look whether they run, with the same run and key, and whether a firewall lies between the hosts");
}

bool Engine::reaches(int process) const {
  std::lock_guard lock(mutex_);
  return connect_done_ && size_t(process) < addresses_.size() && !addresses_[size_t(process)].empty();
}

bool Engine::push_unless_closed(Task& task) {
  std::lock_guard lock(mutex_);  // what is pushed before closed_ is pushed before the stop
  if (closed_) return false;
  inbox_.push(task);
  return true;
}

void Engine::close() {
  check(std::this_thread::get_id() != thread_.get_id(), "a transport is closed inside its own callback");
  std::lock_guard closing(closing_);
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    connected_.notify_all();
  }
  inbox_.push(stop_task_);
  thread_.join();
}

void Engine::run() {
  auto active = Clock::now();
  for (int empty_turns = 0; !stopping_;) {
    bool work = port_->progress() > 0;
    work |= take_tasks();
    work |= flush_dirty();
    work |= lose_broken();
    auto now = Clock::now();
    if (now >= next_tick_) tick();
    if (work) {
      active = now;
      empty_turns = 0;
    } else if (now - active >= std::chrono::microseconds(group_.spin_us)) {
      // An end-point that broke may keep UCX's descriptor readable although there is nothing to do.
      sleep(++empty_turns < empty_turns_max ? next_tick_ : std::min(next_tick_, now + std::chrono::milliseconds(1)));
    }
  }
  shut();
}

bool Engine::take_tasks() {
  InboxNode* node = inbox_.take();
  if (!node) return false;
  while (node) {
    Task& task = static_cast<Task&>(*node);
    node = node->after;  // whoever is told that the task is done may push it again
    switch (task.what) {
      case Task::What::connect: begin_connect(); break;
      case Task::What::stop: stopping_ = true; break;
      case Task::What::send:
      case Task::What::refresh: {
        Transfer& transfer = static_cast<Transfer&>(task);
        Peer& peer = *peers_[size_t(transfer.wire->peer)];
        peer.out.add(transfer);
        touch(peer);
        break;
      }
      case Task::What::release: {
        InSlot& slot = static_cast<InSlot&>(task);
        Peer& peer = *peers_[size_t(slot.wire->peer)];
        peer.credits.push_back(slot.wire->clear(slot));
        touch(peer);
        break;
      }
    }
  }
  return true;
}

void Engine::begin_connect() {
  std::vector<std::string> addresses;
  {
    std::lock_guard lock(mutex_);
    addresses = addresses_;
    for (auto& peer : peers_)
      if (peer && !addresses[size_t(peer->process)].empty()) unproved_.push_back(peer->process);
    connect_done_ = unproved_.empty();
    if (connect_done_) connected_.notify_all();
  }
  try {
    for (auto& peer : peers_) {
      if (!peer || addresses[size_t(peer->process)].empty()) continue;
      peer->endpoint = port_->connect(addresses[size_t(peer->process)], peer->process);
      send_control(*peer, Kind::hello, peer->shake.nonce().data(), sizeof(Nonce));
      for (auto& nonce : std::exchange(peer->early_hellos, {})) {
        Proof proof = peer->shake.answer(nonce);
        send_control(*peer, Kind::proof, &proof, sizeof proof);
      }
    }
  } catch (const Error& error) {
    std::lock_guard lock(mutex_);
    connect_failure_ = error.what();
    connected_.notify_all();
  }
}

void Engine::touch(Peer& peer) {
  if (!std::exchange(peer.dirty, true)) dirty_.push_back(&peer);
}

bool Engine::flush_dirty() {
  if (dirty_.empty()) return false;
  for (Peer* peer : std::exchange(dirty_, {})) {
    peer->dirty = false;
    if (peer->proved && !peer->lost) flush(*peer);
  }
  return true;
}

// Silence is counted in turns of this thread, so a stop of this very process blames nobody.
void Engine::tick() {
  next_tick_ = Clock::now() + tick_every_;
  for (auto& peer : peers_) {
    if (peer && peer->lost) fail(*peer);  // at the latest: UCX may keep what it held
    if (!peer || !peer->proved || peer->lost || peer->left) continue;
    if (++peer->silent_ticks > ticks_of_silence)
      breaks(*peer, "it has said nothing for " + std::to_string(group_.silence_ms_max) + " ms");
    else
      send_control(*peer, Kind::ping, nullptr, 0, {.sequence = ++peer->pings});
  }
}

void Engine::sleep(Clock::time_point until) {
  if (!dirty_.empty() || !inbox_.will_sleep()) return;
  bool rests = until < next_tick_;
  pollfd wait[2] = {{inbox_.descriptor(), POLLIN, 0}, {port_->descriptor(), POLLIN, 0}};
  if (rests || port_->arm()) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    poll(wait, rests ? 1 : 2, int(std::clamp<int64_t>(left, 0, 60'000)));
  }
  inbox_.awake(wait[0].revents != 0);
}

void Engine::breaks(Peer& peer, std::string why) {
  if (peer.lost || !peer.broken.empty()) return;
  peer.broken = std::move(why);
  broken_.push_back(&peer);
}

bool Engine::lose_broken() {
  bool any = !broken_.empty();
  for (Peer* peer : std::exchange(broken_, {})) lose(*peer);
  return any;
}

// Outside of UCX's callbacks, where an end-point may not be closed.
void Engine::lose(Peer& peer) {
  peer.lost = true;
  if (peer.endpoint) port_->close(std::exchange(peer.endpoint, nullptr));
  std::string why = "process " + std::to_string(peer.process) + " is lost: " + peer.broken;
  bool connected = false;
  {
    std::lock_guard lock(mutex_);
    connected = connect_done_;
    if (!connected && connect_failure_.empty()) connect_failure_ = why;
    connected_.notify_all();
  }
  if (peer.flying == 0) fail(peer);
  if (connected && !peer.left && group_.on_lost) group_.on_lost(peer.process, why);
}

void Engine::fail(Peer& peer) {
  std::string why = "the transport is closed";
  if (!peer.broken.empty()) why = "process " + std::to_string(peer.process) + " is lost: " + peer.broken;
  if (!std::exchange(peer.failed, true)) peer.out.fail(why);
}

// Waits until the others know, so that they do not take the end of the connection for a loss. Data is not waited for.
void Engine::say_bye() {
  std::vector<Peer*> waiting;
  for (auto& peer : peers_) {
    if (!peer || !peer->proved || peer->lost || peer->left) continue;
    send_control(*peer, Kind::bye, nullptr, 0);
    waiting.push_back(peer.get());
  }
  for (auto until = Clock::now() + bye_max; Clock::now() < until;) {
    std::erase_if(waiting, [](Peer* peer) { return peer->left || peer->lost; });
    if (waiting.empty()) return;
    if (port_->progress() == 0 && port_->arm()) {
      pollfd wait{port_->descriptor(), POLLIN, 0};
      poll(&wait, 1, 10);
    }
    lose_broken();
  }
}

void Engine::shut() {
  say_bye();
  for (auto& peer : peers_)
    if (peer && peer->endpoint) port_->close(std::exchange(peer->endpoint, nullptr));
  port_.reset();
  for (auto& peer : peers_)
    if (peer) fail(*peer);
}

}  // namespace sluice::ucx
