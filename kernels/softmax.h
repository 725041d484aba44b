// SPDX-License-Identifier: Apache-2.0
// What softmax, log_softmax and the cross-entropy share: the arithmetic of one row (call it inside vectorized()), and
// the whole op along an axis.
// Thread rule: pure but for the buffers.
#pragma once
#include <cstdint>
#include <limits>

#include "kernels/lane_math.h"
#include "kernels/op.h"

namespace sluice {

template <class T>
[[gnu::always_inline]] inline T row_max(const T* x, int64_t n) {
  T most = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

// The sum of exp(x - most). `y`, which may be x, gets the terms.
template <class T>
[[gnu::always_inline]] inline T row_exp(const T* x, int64_t n, T most, T* y) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    T e = lane_exp(x[i] - most);
    y[i] = e;
    sum += e;
  }
  return sum;
}

template <class T>
[[gnu::always_inline]] inline T row_exp_sum(const T* x, int64_t n, T most) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += lane_exp(x[i] - most);
  return sum;
}

// The rule of both: `axis` stays whole, every other dim may be split.
std::vector<LogicalType> softmax_types(const RuleArgs& args);
std::vector<Signature> softmax_signatures(const RuleArgs& args);
void softmax_run(const Call& call, bool log);

// Enqueued; null in a build without nvcc.
[[gnu::weak]] DeviceKernel softmax_cuda;
[[gnu::weak]] DeviceKernel log_softmax_cuda;

}  // namespace sluice
