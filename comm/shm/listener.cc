// SPDX-License-Identifier: Apache-2.0
#include "comm/shm/listener.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace sluice::shm {

namespace {
constexpr uint64_t own_call = UINT64_MAX;  // beside indices of peers
}  // namespace

Listener::Listener(const ProcessGroup& group, std::function<void()> on_gone)
    : group_(group),
      on_gone_(std::move(on_gone)),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_ || !events_) throw Error(Code::failed, "no descriptors are left for a transport", {}, "raise `ulimit -n`");
}

void Listener::start(std::vector<Peer*> peers) {
  peers_ = std::move(peers);
  auto watch = [&](int fd, uint64_t who) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = who}};
    epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event);
  };
  watch(wake_.get(), own_call);
  for (size_t i = 0; i < peers_.size(); ++i) watch(peers_[i]->socket(), i);
  running_ = true;
  if (!peers_.empty()) thread_ = std::thread([this] { serve(); });
}

void Listener::stop() {
  running_ = false;
  wake();
  if (thread_.joinable()) thread_.join();
}

bool Listener::take_all(Peer::Turn turn) {
  bool any = false;
  for (auto& peer : peers_) any |= peer->take(turn);
  return any;
}

// With settling_ held: tells the others whether to call. Whoever asked for calls looks at the rings once more.
void Listener::settle() {
  if ((idle_ && spinning_ == 0) == (generation_ % 2 == 1)) return;
  ++generation_;
  for (auto& peer : peers_) peer->set_asleep(generation_);
}

void Listener::spin(bool begins) {
  {
    std::lock_guard lock(settling_);
    spinning_ += begins ? 1 : -1;
    check(spinning_ >= 0, "spin(false) without spin(true)");
    settle();
    if (spinning_ > 0) return;
  }
  // Whoever took meanwhile may leave something behind.
  while (running_ && is_anything_waiting())
    if (!poll()) std::this_thread::yield();
}

bool Listener::is_anything_waiting() const {
  return std::any_of(peers_.begin(), peers_.end(), [](auto& peer) { return peer->waiting(); });
}

void Listener::wake() {
  uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

// ---- the own thread -------------------------------------------------------------------------------------------------

void Listener::serve() {
  last_beat_ = Clock::now();
  for (auto& peer : peers_) peer->beat();
  for (int turns = 0; running_;) {
    int ms_left = beat();
    report_losses();
    for (auto& peer : peers_) peer->flush();
    if (take_all(Peer::Turn::wait)) {
      if (++turns % 64 == 0) hear(0);  // a busy peer does not hide the end of another
      continue;
    }
    if (group_.spin_us > 0) look_again();
    sleep(ms_left);
  }
}

void Listener::look_again() {
  auto until = Clock::now() + std::chrono::microseconds(group_.spin_us);
  while (running_ && !is_anything_waiting() && Clock::now() < until) __builtin_ia32_pause();
}

void Listener::sleep(int ms_max) {
  auto set_idle = [&](bool idle) {
    std::lock_guard lock(settling_);
    idle_ = idle;
    settle();
  };
  set_idle(true);
  hear(is_anything_waiting() ? 0 : ms_max);
  set_idle(false);
}

void Listener::hear(int ms_max) {
  std::array<epoll_event, 16> events;
  int count = epoll_wait(events_.get(), events.data(), int(events.size()), ms_max);
  for (int i = 0; i < count; ++i) {
    uint64_t who = events[size_t(i)].data.u64;
    if (who == own_call) {
      uint64_t calls;
      (void)!::read(wake_.get(), &calls, sizeof calls);
      continue;
    }
    Peer& peer = *peers_[who];
    peer.hear();
    if (!peer.here()) epoll_ctl(events_.get(), EPOLL_CTL_DEL, peer.socket(), nullptr);
  }
}

// How long until the next beat. Time that this thread did not run for counts as one beat at most.
int Listener::beat() {
  int every = std::max(1, group_.silence_ms_max / 8);
  auto now = Clock::now();
  int passed = int(std::chrono::duration_cast<std::chrono::milliseconds>(now - last_beat_).count());
  if (passed < every) return every - passed;
  last_beat_ = now;
  for (auto& peer : peers_) {
    peer->beat();
    // A peer's first beat follows its own meeting of everybody.
    peer->count_silence(std::min(passed, 2 * every), group_.silence_ms_max, 4 * group_.silence_ms_max);
  }
  return every;
}

void Listener::report_losses() {
  bool any = false;
  for (auto& peer : peers_) {
    any |= !peer->here();
    auto why = peer->unreported_loss();
    if (!why) continue;
    peer->give_up();
    if (group_.on_lost) group_.on_lost(peer->process(), *why);
  }
  if (any) on_gone_();
}

}  // namespace sluice::shm
