// SPDX-License-Identifier: Apache-2.0
// exp, log and tanh as branch-free formulas that a loop over them vectorises. float32: at most 2 ulp over the whole
// range, with denormals, infinities and NaN (lane_math_test.cc); float64: the C library's.
// Thread rule: pure functions.
#pragma once
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>

namespace sluice {

// 2^(a+b) times x, for a, b whose powers are normal numbers.
constexpr float scaled(float x, int32_t a, int32_t b) {
  return x * std::bit_cast<float>(uint32_t(a + 127) << 23) * std::bit_cast<float>(uint32_t(b + 127) << 23);
}

constexpr float lane_exp(float x) {
  constexpr float round = 12582912.f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  float c = x < -104.f ? -104.f : x;
  c = c > 89.f ? 89.f : c;
  float shifted = c * 1.44269504088896341f + round, n = shifted - round;
  float r = c - n * 0.693359375f + n * 2.12194440e-4f;  // x - n log 2, in two parts
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.f;
  auto k = int32_t(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(round));
  k = k < -152 ? -152 : k;
  k = k > 130 ? 130 : k;
  int32_t half = k >> 1;
  return scaled(p, half, k - half);
}

constexpr float lane_log(float x) {
  constexpr float smallest = std::numeric_limits<float>::min(), infinity = std::numeric_limits<float>::infinity();
  float up = x < smallest ? x * 8388608.f : x;  // denormals become normal numbers
  uint32_t bits = std::bit_cast<uint32_t>(up);
  // A mantissa in [sqrt(1/2), sqrt(2)) and its exponent.
  uint32_t offset = bits - 0x3f3504f3u;
  float e = float(int32_t(offset) >> 23) - (x < smallest ? 23.f : 0.f);
  float m = std::bit_cast<float>((offset & 0x7fffffu) + 0x3f3504f3u) - 1.f;
  float z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  p = p * m * z - e * 2.12194440e-4f - 0.5f * z;
  float y = m + p + e * 0.693359375f;
  y = x == infinity ? infinity : y;
  y = x == 0.f ? -infinity : y;
  return (x < 0.f) | (x != x) ? std::numeric_limits<float>::quiet_NaN() : y;
}

constexpr float lane_tanh(float x) {
  float a = x < 0.f ? -x : x;
  float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  float small = p * z * x + x;
  float large = 1.f - 2.f / (lane_exp(a + a) + 1.f);
  large = x < 0.f ? -large : large;
  return a < 0.625f ? small : large;
}

template <std::same_as<double> T>
constexpr T lane_exp(T x) {
  return std::exp(x);
}
template <std::same_as<double> T>
constexpr T lane_log(T x) {
  return std::log(x);
}
template <std::same_as<double> T>
constexpr T lane_tanh(T x) {
  return std::tanh(x);
}
template <class T>
constexpr T lane_sqrt(T x) {
  if constexpr (std::is_same_v<T, float>)
    return __builtin_sqrtf(x);
  else
    return __builtin_sqrt(x);
}

}  // namespace sluice
