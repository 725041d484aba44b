// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/inbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "base/error.h"

namespace sluice::ucx {

Inbox::Inbox() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0)
    throw Error(Code::failed, "no file descriptor is left for a transport", {}, "raise the limit: ulimit -n");
}

Inbox::~Inbox() { close(descriptor_); }

InboxNode* Inbox::take() {
  if (!top_.load(std::memory_order_relaxed)) return nullptr;
  InboxNode *newest = top_.exchange(nullptr, std::memory_order_acquire), *oldest = nullptr;
  while (newest) {
    InboxNode* next = std::exchange(newest->after, oldest);
    oldest = std::exchange(newest, next);
  }
  return oldest;
}

void Inbox::awake(bool was_written) {
  sleeping_.store(false);
  if (!was_written) return;
  uint64_t count = 0;
  [[maybe_unused]] ssize_t got = read(descriptor_, &count, sizeof count);
}

void Inbox::write_descriptor() {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t put = write(descriptor_, &one, sizeof one);
}

}  // namespace sluice::ucx
