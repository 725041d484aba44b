// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/inbox.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>
#include <vector>

namespace sluice::ucx {
namespace {

struct Item : InboxNode {
  int thread = 0, number = 0;
};

// Every push is taken once and in its thread's order, although the taker sleeps whenever it finds nothing.
TEST(Inbox, LosesNothingAndWakesItsTaker) {
  constexpr int threads = 4, count = 20'000;
  Inbox inbox;
  std::vector<std::vector<Item>> items(threads, std::vector<Item>(count));
  std::vector<std::thread> pushers;
  for (int t = 0; t < threads; ++t)
    pushers.emplace_back([&, t] {
      for (int i = 0; i < count; ++i) {
        items[size_t(t)][size_t(i)].thread = t;
        items[size_t(t)][size_t(i)].number = i;
        inbox.push(items[size_t(t)][size_t(i)]);
        if (i % 64 == 0) std::this_thread::yield();
      }
    });
  std::vector<int> next(threads);
  int taken = 0, wrong = 0;
  while (taken < threads * count) {
    InboxNode* node = inbox.take();
    for (; node; node = node->after) {
      auto& item = static_cast<Item&>(*node);
      wrong += item.number != next[size_t(item.thread)]++;
      ++taken;
    }
    if (taken == threads * count || !inbox.will_sleep()) continue;
    pollfd wait{inbox.descriptor(), POLLIN, 0};
    ASSERT_EQ(poll(&wait, 1, 60'000), 1) << "a push woke nobody";
    inbox.awake(true);
  }
  for (auto& pusher : pushers) pusher.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(inbox.take(), nullptr);
}

// A node that was taken may be pushed again at once, by another thread.
TEST(Inbox, TakesANodeAgain) {
  Inbox inbox;
  Item item;
  for (int i = 0; i < 3; ++i) {
    inbox.push(item);
    EXPECT_FALSE(inbox.will_sleep());
    EXPECT_EQ(inbox.take(), &item);
    EXPECT_EQ(item.after, nullptr);
    EXPECT_TRUE(inbox.will_sleep());
    inbox.awake(false);
  }
}

}  // namespace
}  // namespace sluice::ucx
