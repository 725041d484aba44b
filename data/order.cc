// SPDX-License-Identifier: Apache-2.0
// A keyed bijection on [0, rows): a Feistel network on the next power of two, walked until it lands inside (fewer
// than two walks on average). Philox turns (seed, epoch) into the rounds' keys.
#include <bit>

#include "base/error.h"
#include "base/philox.h"
#include "data/reader.h"

namespace sluice {

namespace {

// Two multiplications: every bit of x and of the key reaches every bit.
constexpr uint32_t mix(uint64_t x, uint64_t key) {
  uint64_t product = (x + key) * 0x9E3779B97F4A7C15ull;
  product = (product ^ (product >> 32)) * 0xBF58476D1CE4E5B9ull;
  return uint32_t(product >> 32);
}

// Halves may differ by one bit: each round changes one half by a function of the other, so it can be undone.
struct Feistel {
  Philox4 keys;
  int low_bits;
  uint64_t low_mask, high_mask;

  Feistel(int bits, uint64_t seed, int64_t epoch)
      : keys(philox({uint32_t(uint64_t(epoch)), uint32_t(uint64_t(epoch) >> 32), uint32_t(name_hash("order")), 0},
                    uint32_t(seed), uint32_t(seed >> 32))),
        low_bits((bits + 1) / 2),
        low_mask((uint64_t(1) << low_bits) - 1),
        high_mask((uint64_t(1) << (bits - low_bits)) - 1) {}

  uint64_t operator()(uint64_t x) const {
    uint64_t low = x & low_mask, high = x >> low_bits;
    for (uint64_t round = 0; round < 8; round += 2) {
      high = (high ^ mix(low, keys[round % 4] + (round << 32))) & high_mask;
      low = (low ^ mix(high, keys[round % 4 + 1] + (round << 32))) & low_mask;
    }
    return high << low_bits | low;
  }
};

}  // namespace

int64_t row_at(int64_t position, int64_t rows, bool shuffle, uint64_t seed, int64_t epoch) {
  check(position >= 0 && position < rows, "a position lies outside the epoch");
  if (!shuffle || rows == 1) return position;
  Feistel feistel(std::bit_width(uint64_t(rows - 1)), seed, epoch);
  auto row = uint64_t(position);
  do row = feistel(row);
  while (row >= uint64_t(rows));
  return int64_t(row);
}

}  // namespace sluice
