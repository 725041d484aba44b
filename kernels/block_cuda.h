// SPDX-License-Identifier: Apache-2.0
// Blocks of 8 rows of 32 threads, a row being a warp: what reductions, softmax and losses combine values with. Every
// combination is a tree of a fixed shape, so results are the same bits from run to run. Seen by nvcc only.
// Thread rule: all threads of a block call these together.
#pragma once
#include "kernels/device/cuda_queue.h"

namespace sluice {

inline constexpr int row_threads = 32, block_rows = 8;
inline dim3 block_of_rows() { return dim3(row_threads, block_rows); }

// F of the values of one row of threads; each of them gets it.
template <class F, class T>
__device__ T combine_row(T value) {
  __shared__ T part[block_rows][row_threads];
  T* mine = part[threadIdx.y];
  mine[threadIdx.x] = value;
  __syncthreads();
  for (unsigned width = row_threads / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) mine[threadIdx.x] = F{}(mine[threadIdx.x], mine[threadIdx.x + width]);
    __syncthreads();
  }
  T result = mine[0];
  __syncthreads();
  return result;
}

// F of the values of the threads with one x; those with y == 0 get it.
template <class F, class T>
__device__ T combine_column(T value) {
  __shared__ T part[block_rows][row_threads];
  part[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  for (unsigned width = block_rows / 2; width > 0; width /= 2) {
    if (threadIdx.y < width)
      part[threadIdx.y][threadIdx.x] = F{}(part[threadIdx.y][threadIdx.x], part[threadIdx.y + width][threadIdx.x]);
    __syncthreads();
  }
  T result = part[0][threadIdx.x];
  __syncthreads();
  return result;
}

struct Plus {
  template <class T>
  constexpr T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <class T>
  constexpr T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

// out = the sum of n parts / divisor. One block.
template <class O>
__global__ void sum_parts(const double* parts, int64_t n, double divisor, O* out) {
  double sum = 0;
  for (int64_t i = int64_t(threadIdx.y) * row_threads + threadIdx.x; i < n; i += row_threads * block_rows)
    sum += parts[i];
  sum = combine_column<Plus>(combine_row<Plus>(sum));
  if (threadIdx.x == 0 && threadIdx.y == 0) *out = O(sum / divisor);
}

// Blocks of a loop over rows, each with a part of the sum in the workspace.
inline unsigned blocks_of_rows(const CudaQueue& queue, int64_t rows) {
  return std::min(blocks_for(queue, rows, block_rows), unsigned(queue.workspace_bytes / sizeof(double)));
}

}  // namespace sluice
