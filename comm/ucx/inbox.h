// SPDX-License-Identifier: Apache-2.0
// What other threads hand to the progress thread: a stack of their own nodes, taken all at once, and a descriptor that
// wakes. Nothing is allocated, and the descriptor is written only when the thread may sleep.
// Invariants: a node is in the inbox at most once; nodes of one thread are taken in the order of their pushes.
// Thread rule: push() from any thread; the rest from the one that takes.
#pragma once
#include <atomic>

namespace sluice::ucx {

struct InboxNode {
  InboxNode* after = nullptr;
};

class Inbox {
 public:
  Inbox();  // throws Error when no descriptor is left
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  void push(InboxNode& node) {
    InboxNode* top = top_.load(std::memory_order_relaxed);
    do node.after = top;
    while (!top_.compare_exchange_weak(top, &node));
    wake();
  }
  void wake() {
    if (sleeping_.load() && sleeping_.exchange(false)) write_descriptor();
  }
  // The oldest of all that were pushed, linked by `after`; null: none.
  InboxNode* take();
  // Says that the thread is about to sleep. False: there is something to take, so it must not.
  bool will_sleep() {
    sleeping_.store(true);
    if (!top_.load()) return true;
    sleeping_.store(false);
    return false;
  }
  int descriptor() const { return descriptor_; }  // readable: awake
  void awake(bool was_written);                   // after sleeping; whether the descriptor was readable

 private:
  void write_descriptor();

  std::atomic<InboxNode*> top_{nullptr};
  std::atomic<bool> sleeping_{false};
  int descriptor_ = -1;
};

}  // namespace sluice::ucx
