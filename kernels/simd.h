// SPDX-License-Identifier: Apache-2.0
// Run-time dispatch for loops that are more than one formula (those have kernels/tile-inl.h): vectorized([&] {...})
// compiles its body for the baseline and for AVX2 and runs what this machine has. The body holds `#pragma omp simd`
// loops over plain numbers; calls in it are inlined. No fused multiply-add is made, so both give the same bits.
// Thread rule: pure.
#pragma once

namespace sluice {

namespace detail {
template <class F>
[[gnu::flatten]] void run_baseline(F& body) {
  body();
}
#if defined(__x86_64__)
template <class F>
[[gnu::target("avx2,fma"), gnu::flatten]] void run_avx2(F& body) {
  body();
}
#endif
}  // namespace detail

template <class F>
void vectorized(F&& body) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return detail::run_avx2(body);
#endif
  detail::run_baseline(body);
}

}  // namespace sluice
