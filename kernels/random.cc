// SPDX-License-Identifier: Apache-2.0
#include "kernels/random.h"

#include "kernels/simd.h"

namespace sluice {
namespace {

// philox() of `lanes` blocks at once, one array a word, so that the compiler makes vectors of it.
template <int64_t lanes>
[[gnu::always_inline]] inline void philox_lanes(const RandomKey& key, uint64_t first, uint32_t (&c)[4][lanes]) {
  uint64_t mixed = key.op * 0x9E3779B97F4A7C15ull + uint64_t(key.step);
  uint32_t key0 = uint32_t(key.seed), key1 = uint32_t(key.seed >> 32);
#pragma omp simd
  for (int64_t l = 0; l < lanes; ++l) {
    c[0][l] = uint32_t(first + uint64_t(l));
    c[1][l] = uint32_t((first + uint64_t(l)) >> 32);
    c[2][l] = uint32_t(mixed);
    c[3][l] = uint32_t(mixed >> 32);
  }
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int64_t l = 0; l < lanes; ++l) {
      uint64_t a = uint64_t(0xD2511F53u) * c[0][l], b = uint64_t(0xCD9E8D57u) * c[2][l];
      c[0][l] = uint32_t(b >> 32) ^ c[1][l] ^ key0;
      c[1][l] = uint32_t(b);
      c[2][l] = uint32_t(a >> 32) ^ c[3][l] ^ key1;
      c[3][l] = uint32_t(a);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

template <int64_t lanes>
[[gnu::always_inline]] inline void interleave(const uint32_t (&c)[4][lanes], uint32_t* out, int64_t count) {
#pragma omp simd
  for (int64_t l = 0; l < count; ++l)
    for (int64_t word = 0; word < 4; ++word) out[4 * l + word] = c[word][l];
}

}  // namespace

void random_bits(const RandomKey& key, uint64_t first, int64_t n, uint32_t* out) {
  // The whole blocks of four by a loop that vectorises, what hangs over on both sides one by one.
  int64_t head = std::min<int64_t>(n, int64_t((4 - first % 4) % 4)), blocks = (n - head) / 4;
  for (int64_t i = 0; i < head; ++i) out[i] = key.bits(first + uint64_t(i));
  uint64_t block = (first + uint64_t(head)) / 4;
  uint32_t* whole = out + head;
  vectorized([&] {
    constexpr int64_t lanes = 16;
    uint32_t c[4][lanes];
    for (int64_t b = 0; b < blocks; b += lanes) {
      philox_lanes<lanes>(key, block + uint64_t(b), c);
      interleave(c, whole + 4 * b, std::min(lanes, blocks - b));
    }
  });
  for (int64_t i = head + 4 * blocks; i < n; ++i) out[i] = key.bits(first + uint64_t(i));
}

}  // namespace sluice
