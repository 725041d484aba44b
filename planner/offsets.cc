// SPDX-License-Identifier: Apache-2.0
#include "planner/offsets.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace sluice {
namespace {

using Order = std::function<bool(const Block&, const Block&)>;

// Places blocks in the given order, each in the tightest hole below the top, else on top.
int64_t greedy(std::vector<Block>& blocks, const Order& before) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return before(blocks[a], blocks[b]); });
  std::vector<size_t> placed;  // by offset
  int64_t top = 0;
  for (size_t b : order) {
    auto& block = blocks[b];
    int64_t hole = 0, best = -1, best_gap = std::numeric_limits<int64_t>::max();
    for (size_t p : placed) {
      auto& other = blocks[p];
      if (other.last < block.first || block.last < other.first) continue;
      int64_t gap = other.offset - hole;
      if (gap >= block.bytes && gap < best_gap) best = hole, best_gap = gap;
      hole = std::max(hole, other.offset + other.bytes);
    }
    block.offset = best >= 0 ? best : hole;
    top = std::max(top, block.offset + block.bytes);
    auto at = std::upper_bound(placed.begin(), placed.end(), b,
                               [&](size_t x, size_t y) { return blocks[x].offset < blocks[y].offset; });
    placed.insert(at, b);
  }
  return top;
}

}  // namespace

int64_t peak_of(const std::vector<Block>& blocks) {
  int end = 0;
  for (auto& block : blocks) end = std::max(end, block.last + 1);
  std::vector<int64_t> change(size_t(end) + 1, 0);
  for (auto& block : blocks) change[size_t(block.first)] += block.bytes, change[size_t(block.last) + 1] -= block.bytes;
  int64_t live = 0, peak = 0;
  for (int64_t c : change) peak = std::max(peak, live += c);
  return peak;
}

int64_t place_blocks(std::vector<Block>& blocks, bool reuse) {
  if (!reuse) {
    int64_t top = 0;
    for (auto& block : blocks) block.offset = top, top += block.bytes;
    return top;
  }
  auto span = [](const Block& b) { return int64_t(b.last - b.first); };
  std::vector<Order> orders{
      [](auto& a, auto& b) { return a.bytes > b.bytes; },
      [&](auto& a, auto& b) { return span(a) > span(b); },
      [&](auto& a, auto& b) { return a.bytes * (span(a) + 1) > b.bytes * (span(b) + 1); },
      [](auto& a, auto& b) { return a.first < b.first; },
  };
  int64_t bound = peak_of(blocks), least = std::numeric_limits<int64_t>::max();
  std::vector<Block> best;
  for (auto& order : orders) {
    auto trial = blocks;
    int64_t bytes = greedy(trial, order);
    if (bytes < least) least = bytes, best = std::move(trial);
    if (least <= bound) break;
  }
  if (!best.empty()) blocks = std::move(best);
  return blocks.empty() ? 0 : least;
}

}  // namespace sluice
