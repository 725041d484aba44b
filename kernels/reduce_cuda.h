// SPDX-License-Identifier: Apache-2.0
// Reductions on a GPU, by the functors of kernels/reduce-inl.h. A row of threads takes an output where neighbouring
// elements are reduced, a thread where neighbours are kept; long reductions are split, and the parts reduced again.
// How they are split depends on the shape only, never on the GPU. Seen by nvcc only.
// Thread rule: that of the call's queue.
#pragma once
#include "kernels/block_cuda.h"
#include "kernels/reduce.h"

namespace sluice {

struct ReduceDims {
  int rank = 0;
  int64_t size[rank_max] = {}, stride[rank_max] = {};  // of the input, outermost first

  __device__ int64_t offset(int64_t index) const {
    int64_t offset = 0;
    for (int d = rank - 1; d >= 0; --d) {
      int64_t outer = d == 0 ? 0 : index / size[d];
      offset += (index - outer * size[d]) * stride[d];
      index = outer;
    }
    return offset;
  }
  void add(int64_t n, int64_t step) {
    size[rank] = n;
    stride[rank++] = step;
  }
};

struct ReduceShape {
  ReduceDims kept, lost;
  int64_t outputs = 1, summands = 1, splits = 1;
  bool rows = true;  // neighbouring elements are reduced

  __device__ int64_t begin_of(int64_t split) const { return summands * split / splits; }
};

// Output o of split s is out[o * splits + s].
template <class F, class T, class A, class Finish>
__global__ void reduce_rows(const T* in, A* out, ReduceShape shape, Finish finish) {
  int64_t jobs = shape.outputs * shape.splits;
  for (int64_t first = int64_t(blockIdx.x) * block_rows; first < jobs; first += int64_t(gridDim.x) * block_rows) {
    int64_t job = first + threadIdx.y;
    A value = F::template identity<A>();
    if (job < jobs) {
      const T* from = in + shape.kept.offset(job / shape.splits);
      int64_t split = job % shape.splits, end = shape.begin_of(split + 1);
      for (int64_t i = shape.begin_of(split) + threadIdx.x; i < end; i += row_threads)
        value = F{}(value, A(from[shape.lost.offset(i)]));
    }
    value = combine_row<F>(value);
    if (job < jobs && threadIdx.x == 0) out[job] = finish(value);
  }
}

template <class F, class T, class A, class Finish>
__global__ void reduce_columns(const T* in, A* out, ReduceShape shape, Finish finish) {
  int64_t tiles = (shape.outputs + row_threads - 1) / row_threads, jobs = tiles * shape.splits;
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    int64_t output = job % tiles * row_threads + threadIdx.x, split = job / tiles, end = shape.begin_of(split + 1);
    A value = F::template identity<A>();
    if (output < shape.outputs) {
      const T* from = in + shape.kept.offset(output);
      for (int64_t i = shape.begin_of(split) + threadIdx.y; i < end; i += block_rows)
        value = F{}(value, A(from[shape.lost.offset(i)]));
    }
    value = combine_column<F>(value);
    if (output < shape.outputs && threadIdx.y == 0) out[output * shape.splits + split] = finish(value);
  }
}

// What the result becomes when it is written.
struct AsItIs {
  template <class A>
  constexpr A operator()(A x) const {
    return x;
  }
};
struct DividedBy {
  double count;
  template <class A>
  constexpr A operator()(A x) const {
    return x / A(count);
  }
};

inline ReduceShape reduce_shape(const Call& call) {
  ReduceShape shape;
  auto loops = reduce_loops(call.in[0], call.attr<std::vector<int64_t>>("axis")).loops;
  for (auto& loop : loops) {
    (loop.reduced ? shape.lost : shape.kept).add(loop.size, loop.in_stride);
    (loop.reduced ? shape.summands : shape.outputs) *= loop.size;
  }
  shape.rows = loops.empty() || loops.back().reduced;
  return shape;
}

template <class F, class T, class A, class Finish>
void reduce_once(CudaQueue& queue, const T* in, A* out, const ReduceShape& shape, Finish finish) {
  int64_t tiles = (shape.outputs + row_threads - 1) / row_threads, jobs = shape.outputs * shape.splits;
  if (shape.rows)
    launch(queue, blocks_for(queue, jobs, block_rows), block_of_rows(), reduce_rows<F, T, A, Finish>, in, out, shape,
           finish);
  else
    launch(queue, blocks_for(queue, tiles * shape.splits, 1), block_of_rows(), reduce_columns<F, T, A, Finish>, in, out,
           shape, finish);
}

// `A` is the type of the result and of the running values, `T` of the elements.
template <class F, class T, class A, class Finish = AsItIs>
void reduce_cuda(const Call& call, Finish finish = {}) {
  constexpr int64_t parts_wanted = 8192, summands_min = 1024;
  CudaQueue& queue = queue_of(call);
  ReduceShape shape = reduce_shape(call);
  if (shape.outputs == 0) return;
  const T* in = call.in[0].as<const T>();
  A* out = call.out[0].as<A>();
  shape.splits = std::clamp<int64_t>(std::min(parts_wanted / shape.outputs, shape.summands / summands_min), 1, 1024);
  if (shape.splits == 1) return reduce_once<F>(queue, in, out, shape, finish);
  A* parts = reinterpret_cast<A*>(queue.workspace);
  reduce_once<F>(queue, in, parts, shape, AsItIs{});
  ReduceShape again;
  again.kept.add(shape.outputs, shape.splits);
  again.lost.add(shape.splits, 1);
  again.outputs = shape.outputs;
  again.summands = shape.splits;
  reduce_once<F>(queue, static_cast<const A*>(parts), out, again, finish);
}

}  // namespace sluice
