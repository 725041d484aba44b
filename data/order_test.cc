// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "data/reader.h"

namespace sluice {
namespace {

std::vector<int64_t> order_of(int64_t rows, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < rows; ++i) order.push_back(row_at(i, rows, true, seed, epoch));
  return order;
}

TEST(Order, IsABijectionForEverySize) {
  std::vector<int64_t> sizes(130);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (int64_t size : {255, 256, 257, 1000, 4095, 4097, 60000}) sizes.push_back(size);
  for (int64_t rows : sizes)
    for (uint64_t seed : {0ull, 1ull, 0xFFFFFFFFFFFFFFFFull}) {
      auto order = order_of(rows, seed, 3);
      std::sort(order.begin(), order.end());
      for (int64_t i = 0; i < rows; ++i) ASSERT_EQ(order[size_t(i)], i) << rows << " rows, seed " << seed;
    }
}

TEST(Order, IsTheIdentityWhenNotShuffled) {
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(row_at(i, 100, false, 5, 7), i);
}

TEST(Order, DiffersByEverySeedAndEpoch) {
  auto first = order_of(1000, 1, 0);
  EXPECT_EQ(first, order_of(1000, 1, 0));
  for (auto& other : {order_of(1000, 2, 0), order_of(1000, 1, 1), order_of(1000, 1 + (1ull << 32), 0)}) {
    int same = 0;
    for (size_t i = 0; i < first.size(); ++i) same += first[i] == other[i];
    EXPECT_LT(same, 20);  // one is expected
  }
}

// Any position goes anywhere about equally often, and neighbours do not stay neighbours.
TEST(Order, MixesWell) {
  constexpr int64_t rows = 10, seeds = 20000;
  int counts[rows][rows] = {};
  for (uint64_t seed = 0; seed < seeds; ++seed)
    for (int64_t i = 0; i < rows; ++i) ++counts[i][row_at(i, rows, true, seed, 0)];
  for (auto& line : counts)
    for (int count : line) EXPECT_NEAR(count, seeds / rows, 300) << "7 standard deviations";
  auto order = order_of(60000, 9, 2);
  int neighbours = 0, rising = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    neighbours += std::abs(order[i] - order[i - 1]) == 1;
    rising += order[i] > order[i - 1];
  }
  EXPECT_LT(neighbours, 20);
  EXPECT_NEAR(rising, 30000, 700);
}

// The order is part of what "the same run" means: it may not drift from one version to the next.
TEST(Order, IsPinned) {
  EXPECT_EQ(order_of(8, 1, 0), (std::vector<int64_t>{6, 7, 2, 5, 3, 1, 4, 0}));
  EXPECT_EQ(row_at(0, int64_t(1) << 50, true, 42, 3), 925329591214218);
}

}  // namespace
}  // namespace sluice
