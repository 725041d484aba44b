// SPDX-License-Identifier: Apache-2.0
#include "planner/offsets.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice {
namespace {

bool overlap(const Block& a, const Block& b) {
  bool time = a.first <= b.last && b.first <= a.last;
  bool space = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  return time && space;
}

TEST(Offsets, LiveBlocksNeverOverlapAndThePeakIsNear) {
  std::mt19937 random(1);
  double worst = 1;
  for (int round = 0; round < 100; ++round) {
    std::vector<Block> blocks;
    for (int i = 0; i < 60; ++i) {
      int first = int(random() % 50);
      blocks.push_back({int64_t(random() % 64 + 1) * 64, first, first + int(random() % 12), 0});
    }
    int64_t bytes = place_blocks(blocks, true), peak = peak_of(blocks);
    for (size_t a = 0; a < blocks.size(); ++a) {
      EXPECT_LE(blocks[a].offset + blocks[a].bytes, bytes);
      for (size_t b = 0; b < a; ++b) EXPECT_FALSE(overlap(blocks[a], blocks[b]));
    }
    EXPECT_GE(bytes, peak);
    worst = std::max(worst, double(bytes) / double(peak));
  }
  EXPECT_LT(worst, 1.25);
}

TEST(Offsets, WithoutReuseEveryBlockIsAlone) {
  std::vector<Block> blocks{{64, 0, 0}, {128, 5, 6}, {64, 9, 9}};
  EXPECT_EQ(place_blocks(blocks, false), 256);
  EXPECT_EQ(blocks[2].offset, 192);
  EXPECT_EQ(peak_of(blocks), 128);
}

}  // namespace
}  // namespace sluice
