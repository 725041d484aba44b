// SPDX-License-Identifier: Apache-2.0
// The one device kernel of all element-wise ops: a thread takes elements of the output and finds each input's by the
// merged loops of kernels/tile.h. A formula is the same text as on the CPU (kernels/tile-inl.h). Seen by nvcc only.
// Thread rule: that of the call's queue.
#pragma once
#include <type_traits>
#include <utility>

#include "kernels/device/cuda_queue.h"
#include "kernels/tile.h"

namespace sluice {

// TileLoops with as many inputs as there are: it travels with every launch.
template <size_t N>
struct MapLoops {
  int rank = 0;
  int64_t size[rank_max] = {};
  int64_t stride[N == 0 ? 1 : N][rank_max] = {};
};

template <size_t N>
struct MapOffsets {
  int64_t at[N == 0 ? 1 : N];
};

template <size_t N>
__device__ MapOffsets<N> offsets_of(const MapLoops<N>& loops, int64_t element) {
  MapOffsets<N> offsets{};
  for (int d = loops.rank - 1; d >= 0; --d) {
    int64_t outer = d == 0 ? 0 : element / loops.size[d], here = element - outer * loops.size[d];
    for (size_t i = 0; i < N; ++i) offsets.at[i] += here * loops.stride[i][d];
    element = outer;
  }
  return offsets;
}

template <class F, class O, class... I, size_t... k>
__device__ O map_one(const F& f, const MapOffsets<sizeof...(I)>& offsets, std::index_sequence<k...>, const I*... in) {
  return f(in[offsets.at[k]]...);
}

template <class F, class O, class... I>
__global__ void map_kernel(F f, O* out, int64_t n, MapLoops<sizeof...(I)> loops, const I*... in) {
  for (int64_t i = thread_index(); i < n; i += thread_stride())
    out[i] = map_one<F, O, I...>(f, offsets_of(loops, i), std::index_sequence_for<I...>{}, in...);
}

// A formula of no operands.
template <class T>
struct Always {
  T value;
  constexpr T operator()() const { return value; }
};

// Output 0 of the call is f of its inputs, with broadcasting.
template <class F, class O, class... I>
void map_cuda(const Call& call, F f = {}) {
  int64_t n = call.out[0].numel();
  if (n == 0) return;
  CudaQueue& queue = queue_of(call);
  TileLoops merged = tile_loops(call);
  MapLoops<sizeof...(I)> loops;
  loops.rank = merged.rank;
  for (int d = 0; d < merged.rank; ++d) {
    loops.size[d] = merged.size[size_t(d)];
    for (size_t i = 0; i < sizeof...(I); ++i) loops.stride[i][d] = merged.stride[i][size_t(d)];
  }
  [&]<size_t... k>(std::index_sequence<k...>) {
    launch(queue, blocks_for(queue, n), cuda_threads, map_kernel<F, O, I...>, f, call.out[0].as<O>(), n, loops,
           call.in[k].template as<const I>()...);
  }
  (std::index_sequence_for<I...>{});
}

namespace map_detail {
template <class T, size_t>
using Same = T;
template <class F, class O, class T, size_t... k>
void run(const Call& call, std::index_sequence<k...>) {
  map_cuda<F, O, Same<T, k>...>(call);
}
}  // namespace map_detail

// A formula of N operands of one dtype, for all numbers.
template <class F, size_t N>
void number_map_cuda(const Call& call) {
  visit_dtype(call.out[0].dtype, [&]<class T>(Tag<T>) {
    if constexpr (!std::is_same_v<T, bool>) map_detail::run<F, T, T>(call, std::make_index_sequence<N>{});
  });
}

// ... for float32 and float64.
template <class F, size_t N>
void float_map_cuda(const Call& call) {
  if (call.out[0].dtype == DType::float32)
    map_detail::run<F, float, float>(call, std::make_index_sequence<N>{});
  else
    map_detail::run<F, double, double>(call, std::make_index_sequence<N>{});
}

// A comparison of two operands of one dtype, bool included; the result is bool.
template <class F>
void compare_map_cuda(const Call& call) {
  visit_dtype(call.in[0].dtype, [&]<class T>(Tag<T>) { map_cuda<F, bool, T, T>(call); });
}

}  // namespace sluice
