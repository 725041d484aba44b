// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cuda_queue.h"
#include "kernels/strided.h"

namespace sluice {
namespace {

struct Strides {
  int rank = 0;
  int64_t size[rank_max] = {}, stride[rank_max] = {};
};

// TODO(perf): a transpose reads across rows; tiles in shared memory would read along them.
template <class T>
__global__ void gather(T* out, const T* in, int64_t n, Strides strides) {
  for (int64_t i = thread_index(); i < n; i += thread_stride()) {
    int64_t rest = i, from = 0;
    for (int d = strides.rank - 1; d >= 0; --d) {
      int64_t outer = rest / strides.size[d];
      from += (rest - outer * strides.size[d]) * strides.stride[d];
      rest = outer;
    }
    out[i] = in[from];
  }
}

template <class T>
void run(const Call& call, const Strides& strides) {
  int64_t n = call.out[0].numel();
  CudaQueue& queue = queue_of(call);
  launch(queue, blocks_for(queue, n), cuda_threads, gather<T>, call.out[0].as<T>(), call.in[0].as<const T>(), n,
         strides);
}

}  // namespace

void copy_strided_cuda(const Call& call, const std::array<int64_t, rank_max>& stride) {
  const View& out = call.out[0];
  if (out.numel() == 0) return;
  Strides strides;
  strides.rank = out.rank;
  for (int d = 0; d < out.rank; ++d) {
    strides.size[d] = out.dims[size_t(d)];
    strides.stride[d] = stride[size_t(d)];
  }
  switch (bytes_of(out.dtype)) {
    case 1: return run<uint8_t>(call, strides);
    case 2: return run<uint16_t>(call, strides);
    case 4: return run<uint32_t>(call, strides);
    default: return run<uint64_t>(call, strides);
  }
}

void copy_same_cuda(const Call& call) {
  auto &in = call.in[0], &out = call.out[0];
  check(in.numel() == out.numel(), "a change of shape kept the number of elements");
  if (out.numel() > 0 && out.data != in.data)
    ok(cudaMemcpyAsync(out.data, in.data, size_t(out.numel() * bytes_of(out.dtype)), cudaMemcpyDefault,
                       queue_of(call).stream),
       "a change of shape");
}

}  // namespace sluice
