// SPDX-License-Identifier: Apache-2.0
// From a formula to kernels. A formula is a functor on plain numbers, templated on their type:
//   struct Add { template <class T> constexpr T operator()(T x, T y) const { return x + y; } };
// It is compiled here for the baseline and for AVX2 by the compiler's own vectoriser, and by nvcc as it stands; so a
// formula is constexpr (to nvcc: of host and device), has no branches, only selects (`x < 0 ? T(0) : x`), and takes its
// exp, log and tanh from kernels/lane_math.h.
// A functor with a constructor from `const double*` gets the op's attributes (tile_params).
// Thread rule: pure functions.
#pragma once
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/rule.h"
#include "kernels/tile.h"

#ifdef __CUDACC__
#include "kernels/map_cuda.h"
#endif

namespace sluice {

template <class F>
F formula_of(const double* params) {
  if constexpr (std::is_constructible_v<F, const double*>)
    return F(params);
  else
    return F();
}

#ifndef __CUDACC__

template <class F, class O, class... I>
struct Block {
  [[gnu::always_inline]] static inline void loop(F f, O* out, int64_t n, const I*... in) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = f(in[i]...);
  }
  [[gnu::flatten]] static void baseline(F f, O* out, int64_t n, const I*... in) { loop(f, out, n, in...); }
#if defined(__x86_64__)
  [[gnu::target("avx2,fma"), gnu::flatten]] static void avx2(F f, O* out, int64_t n, const I*... in) {
    loop(f, out, n, in...);
  }
#endif
  static void run(F f, O* out, int64_t n, const I*... in) {
#if defined(__x86_64__)
    if constexpr ((std::is_floating_point_v<I> || ...))
      if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2(f, out, n, in...);
#endif
    baseline(f, out, n, in...);
  }
};

// One row: inputs of n elements, or scalars, which are spread over a small buffer so that one loop serves all cases.
template <class F, class O, class... I>
void map_row(O* out, const void* const* in, int64_t n, uint32_t scalar_mask, const double* params) {
  constexpr size_t count = sizeof...(I);
  constexpr int64_t chunk_elements = 256;
  F f = formula_of<F>(params);
  [&]<size_t... k>(std::index_sequence<k...>) {
    if ((scalar_mask & ((1u << count) - 1)) == 0)
      return Block<F, O, I...>::run(f, out, n, static_cast<const I*>(in[k])...);
    if (scalar_mask == (1u << count) - 1) {
      O value[1];
      Block<F, O, I...>::run(f, value, 1, static_cast<const I*>(in[k])...);
      return void(std::fill_n(out, n, value[0]));
    }
    std::tuple<std::array<I, chunk_elements>...> spread;
    int64_t chunk = std::min(n, chunk_elements);
    auto fill = [&]<size_t i>(std::integral_constant<size_t, i>) {
      auto& buffer = std::get<i>(spread);
      using T = typename std::remove_reference_t<decltype(buffer)>::value_type;
      if (scalar_mask >> i & 1) std::fill_n(buffer.data(), chunk, *static_cast<const T*>(in[i]));
    };
    (fill(std::integral_constant<size_t, k>{}), ...);
    for (int64_t begin = 0; begin < n; begin += chunk)
      Block<F, O, I...>::run(
          f, out + begin, std::min(chunk, n - begin),
          (scalar_mask >> k & 1 ? std::get<k>(spread).data() : static_cast<const I*>(in[k]) + begin)...);
  }
  (std::index_sequence_for<I...>{});
}

namespace tile_detail {

template <class T, size_t>
using Same = T;

template <class F, class T, size_t... k>
void tile_row(T* out, const T* const* in, int64_t n, uint32_t scalar_mask, const double* params) {
  const void* any[] = {in[k]...};
  map_row<F, T, Same<T, k>...>(out, any, n, scalar_mask, params);
}

template <class F, size_t... k>
constexpr Tile tile(std::index_sequence<k...>) {
  return {&tile_row<F, float, k...>, &tile_row<F, double, k...>};
}

template <class F, class O, class T, size_t... k>
void run_map(const Call& call, const double* params, std::index_sequence<k...>) {
  run_rows(call, [params](void* out, const void* const* in, int64_t n, uint32_t scalar_mask) {
    map_row<F, O, Same<T, k>...>(static_cast<O*>(out), in, n, scalar_mask, params);
  });
}

}  // namespace tile_detail

// The block kernels of a formula of N operands.
template <class F, size_t N>
constexpr Tile tile_of() {
  return tile_detail::tile<F>(std::make_index_sequence<N>{});
}

// The kernel of a formula of N operands of one dtype, for all numbers; the result has that dtype.
template <class F, size_t N>
void number_map(const Call& call) {
  visit_dtype(call.in[0].dtype, [&]<class T>(Tag<T>) {
    if constexpr (!std::is_same_v<T, bool>) tile_detail::run_map<F, T, T>(call, nullptr, std::make_index_sequence<N>{});
  });
}

// The kernel of a comparison: operands of one dtype, bool included; the result is bool.
template <class F, size_t N>
void compare_map(const Call& call) {
  visit_dtype(call.in[0].dtype,
              [&]<class T>(Tag<T>) { tile_detail::run_map<F, bool, T>(call, nullptr, std::make_index_sequence<N>{}); });
}

#endif  // __CUDACC__

// Arithmetic of integers wraps around, as in NumPy, and is never undefined behaviour.
template <class T, class F>
constexpr T wrapped(T x, T y, F f) {
  if constexpr (std::is_integral_v<T>)
    return T(f(uint64_t(x), uint64_t(y)));
  else
    return f(x, y);
}

}  // namespace sluice
