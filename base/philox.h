// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): random numbers by counter.
// Keyed by (seed, op, step) with the element's index in the whole batch's logical tensor as the counter, so a number
// does not depend on the placement or on the micro-batch count.
// Thread rule: pure functions.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace sluice {

using Philox4 = std::array<uint32_t, 4>;

constexpr Philox4 philox(Philox4 counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t(0xD2511F53u) * counter[0], b = uint64_t(0xCD9E8D57u) * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ key0, uint32_t(b), uint32_t(a >> 32) ^ counter[3] ^ key1, uint32_t(a)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// FNV-1a: a stable hash of a name, the `op` part of a random key. It depends on the name only.
constexpr uint64_t name_hash(std::string_view name) {
  uint64_t h = 14695981039346656037ull;
  for (char c : name) h = (h ^ uint8_t(c)) * 1099511628211ull;
  return h;
}

struct RandomKey {
  uint64_t seed = 0, op = 0;
  int64_t step = 0;
  // Four 32-bit numbers for elements 4*block .. 4*block+3.
  constexpr Philox4 block(uint64_t block) const {
    uint64_t mixed = op * 0x9E3779B97F4A7C15ull + uint64_t(step);
    return philox({uint32_t(block), uint32_t(block >> 32), uint32_t(mixed), uint32_t(mixed >> 32)}, uint32_t(seed),
                  uint32_t(seed >> 32));
  }
  constexpr uint32_t bits(uint64_t index) const { return block(index / 4)[index % 4]; }
  // Uniform in [0, 1) with 24 bits: exact in float32.
  constexpr double uniform(uint64_t index) const { return (bits(index) >> 8) * (1.0 / 16777216.0); }
};

}  // namespace sluice
