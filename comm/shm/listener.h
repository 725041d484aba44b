// SPDX-License-Identifier: Apache-2.0
// Who takes what peers ring: the transport's own thread, which sleeps until it is called, or workers that spin.
//
// A process writes into its pages whether it wants to be called. To go to sleep is to ask for calls first and to look
// at the rings once more; while workers spin, nobody asks.
// The own thread also lets the heart beat, hears those of the others, and reports who is lost.
// Thread rule: poll(), spin() and wake() from any thread; start() and stop() once.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/shm/peer.h"
#include "comm/transport.h"

namespace sluice::shm {

class Listener {
 public:
  // `on_gone`: somebody is gone, in good order or not; on the own thread.
  Listener(const ProcessGroup& group, std::function<void()> on_gone);
  ~Listener() { stop(); }
  void start(std::vector<Peer*> peers);
  void stop();  // joins
  bool poll() { return running_ && take_all(Peer::Turn::skip); }
  void spin(bool begins);
  void wake();

 private:
  using Clock = std::chrono::steady_clock;

  bool take_all(Peer::Turn turn);
  bool is_anything_waiting() const;
  void settle();
  void serve();
  void look_again();
  void sleep(int ms_max);
  void hear(int ms_max);
  int beat();
  void report_losses();

  const ProcessGroup& group_;
  const std::function<void()> on_gone_;
  std::vector<Peer*> peers_;
  Fd events_, wake_;
  std::thread thread_;
  std::atomic<bool> running_{false};
  Clock::time_point last_beat_{};

  std::mutex settling_;
  bool idle_ = false;  // the own thread sleeps, or is about to
  int spinning_ = 0;
  uint64_t generation_ = 0;  // what the pages' `asleep` says; odd: calls are wanted
};

}  // namespace sluice::shm
