// SPDX-License-Identifier: Apache-2.0
// Random numbers on a GPU: each thread finds an element's index in the whole batch's tensor and draws by it, so the
// bits are the CPU's. Seen by nvcc only. Thread rule: that of the call's queue.
#pragma once
#include "kernels/device/cuda_queue.h"
#include "kernels/random.h"

namespace sluice {

struct WholeIndex {
  int rank = 0;
  int64_t size[rank_max] = {}, origin[rank_max] = {}, step[rank_max] = {};

  explicit WholeIndex(const View& view) : rank(view.rank) {
    int64_t at = 1;
    for (int d = rank - 1; d >= 0; --d) {
      size[d] = view.dims[size_t(d)];
      origin[d] = view.origin[size_t(d)];
      step[d] = at;
      at *= view.whole[size_t(d)];
    }
  }
  __device__ uint64_t of(int64_t element) const {
    int64_t index = 0;
    for (int d = rank - 1; d >= 0; --d) {
      int64_t outer = element / size[d];
      index += (element - outer * size[d] + origin[d]) * step[d];
      element = outer;
    }
    return uint64_t(index);
  }
};

template <class T, class Draw>
__global__ void draw_all(Draw draw, RandomKey key, WholeIndex index, int64_t n, T* out) {
  for (int64_t i = thread_index(); i < n; i += thread_stride()) out[i] = T(draw(key, index.of(i)));
}

// out[...] = draw(key, index of the element).
template <class Draw>
void generate_cuda(const Call& call, Draw draw) {
  CudaQueue& queue = queue_of(call);
  const View& out = call.out[0];
  int64_t n = out.numel();
  if (n == 0) return;
  unsigned blocks = blocks_for(queue, n);
  if (out.dtype == DType::float32)
    launch(queue, blocks, cuda_threads, draw_all<float, Draw>, draw, random_key_of(call), WholeIndex(out), n,
           out.as<float>());
  else
    launch(queue, blocks, cuda_threads, draw_all<double, Draw>, draw, random_key_of(call), WholeIndex(out), n,
           out.as<double>());
}

}  // namespace sluice
