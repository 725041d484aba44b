// SPDX-License-Identifier: Apache-2.0
// The watchdog: its own thread, which only looks at counters. When no actor fires for a while although granted steps
// are not done, it asks every stream for the state of its ports and fails the floor with the cycle of waits.
// Thread rule: made and destroyed by the client's thread.
#pragma once
#include <thread>

#include "actors/lower.h"

namespace sluice {

int64_t firings_of(const Lowered& lowered);
// Who waits for whom, from the streams' reports; a stream that does not answer is inside an actor, which is named.
std::string stall_report(const World& world, const Lowered& lowered);
// Asks all streams for their report and fails the floor: "no actor fired for ...".
void fail_stalled(World& world, Lowered& lowered, const std::string& headline);

class Watchdog {
 public:
  Watchdog(World& world, Lowered& lowered, std::function<bool()> outstanding);
  ~Watchdog();

 private:
  void work();
  World& world_;
  Lowered& lowered_;
  std::function<bool()> outstanding_;  // any thread: granted steps are not done
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last: it starts when all else is there
};

}  // namespace sluice
