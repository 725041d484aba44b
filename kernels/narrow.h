// SPDX-License-Identifier: Apache-2.0
// The 16-bit storage types as wrappers of their bits: widened to float32 to compute, narrowed to nearest even.
// Thread rule: values.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>
#if defined(__CUDACC__) && !defined(SLUICE_EMULATE_CUDA)
#include <cuda_fp16.h>
#endif

namespace sluice {

struct BFloat16 {
  uint16_t bits;
  static constexpr float widen(BFloat16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }
  static constexpr BFloat16 narrow(float x) {
    uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {uint16_t(u >> 16 | 0x40)};  // NaN stays one
    return {uint16_t((u + 0x7fffu + (u >> 16 & 1)) >> 16)};
  }
};

struct Float16 {
  uint16_t bits;
#if defined(__CUDACC__) && !defined(SLUICE_EMULATE_CUDA)
  static __host__ __device__ float widen(Float16 x) { return __half2float(__half(__half_raw{x.bits})); }
  static __host__ __device__ Float16 narrow(float x) { return {__half_raw(__float2half_rn(x)).x}; }
#else
  static float widen(Float16 x) { return float(std::bit_cast<_Float16>(x.bits)); }
  static Float16 narrow(float x) { return {std::bit_cast<uint16_t>(_Float16(x))}; }
#endif
};

template <class T>
inline constexpr bool is_narrow = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

}  // namespace sluice
