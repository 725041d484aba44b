// SPDX-License-Identifier: Apache-2.0
// A queue from any thread to one that waits for descriptors.
// Thread rule: post from any thread; the rest on the one that takes.
#pragma once
#include <sys/eventfd.h>

#include <mutex>
#include <utility>
#include <vector>

#include "launcher/process.h"

namespace sluice {

template <class T>
class Events {
 public:
  int handle() const { return wake_.get(); }  // readable when there are some
  void post(T event) {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    eventfd_write(wake_.get(), 1);
  }
  std::vector<T> take() {
    std::lock_guard lock(mutex_);
    eventfd_t ignored;
    eventfd_read(wake_.get(), &ignored);
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<T> events_;
  Handle wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

}  // namespace sluice
