// SPDX-License-Identifier: Apache-2.0
// Offsets for blocks with lifetimes (dynamic storage allocation): best of several greedy orders, each placing a block
// at the lowest offset that no live neighbour covers; stops at the lower bound.
// Thread rule: pure functions.
#pragma once
#include <cstdint>
#include <vector>

namespace sluice {

struct Block {
  int64_t bytes = 0;
  int first = 0, last = 0;  // alive in [first, last]
  int64_t offset = 0;       // the answer
};

int64_t peak_of(const std::vector<Block>& blocks);  // most bytes alive at once: the lower bound
// Sets the offsets; returns the bytes needed. `reuse` false: every block has its own place.
int64_t place_blocks(std::vector<Block>& blocks, bool reuse);

}  // namespace sluice
