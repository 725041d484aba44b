// SPDX-License-Identifier: Apache-2.0
// Waits for device events on behalf of streams: when an event is done, its action runs on the poller's thread. So no
// worker ever blocks on a device. Only floors on asynchronous devices have one.
// Thread rule: watch() from any thread; actions run on the poller's thread and must only post.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/device/device.h"

namespace sluice {

class Poller {
 public:
  Poller();
  ~Poller();
  void stop();  // joins; what is still watched, or will be, is dropped. Before streams and transport go
  void watch(EventPtr event, std::function<void()> action);
  void settle();  // returns when the actions of events that were done before have run; not while it stops

 private:
  struct Item {
    EventPtr event;
    std::function<void()> action;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Item> fresh_;  // guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  std::thread thread_;       // last: it starts when all else is there
};

}  // namespace sluice
