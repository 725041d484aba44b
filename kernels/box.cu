// SPDX-License-Identifier: Apache-2.0
#include "kernels/box.h"
#include "kernels/device/cuda_queue.h"

namespace sluice {
namespace {

struct Places {
  int64_t from, to;
};

__device__ Places places_of(const BoxWalk& walk, int64_t element) {
  int64_t outer = element / walk.run, inner = element - outer * walk.run;
  Places places{walk.from_begin + inner, walk.to_begin + inner};
  for (int d = 0; d < walk.dims; ++d) {
    int64_t next = d + 1 == walk.dims ? 0 : outer / walk.size[d], at = outer - next * walk.size[d];
    places.from += at * walk.from_step[d];
    places.to += at * walk.to_step[d];
    outer = next;
  }
  return places;
}

template <class T>
__global__ void copy_box(BoxWalk walk, int64_t n, const T* from, T* to) {
  for (int64_t i = thread_index(); i < n; i += thread_stride()) {
    Places places = places_of(walk, i);
    to[places.to] = from[places.from];
  }
}

template <class T>
__global__ void combine_box(BoxWalk walk, int64_t n, Combine combine, const T* from, T* to) {
  for (int64_t i = thread_index(); i < n; i += thread_stride()) {
    Places places = places_of(walk, i);
    T a = to[places.to], b = from[places.from];
    to[places.to] = combine == Combine::sum   ? combined<CombineSum>(a, b)
                    : combine == Combine::max ? combined<CombineMax>(a, b)
                                              : combined<CombineMin>(a, b);
  }
}

template <class T>
void copy(CudaQueue& queue, const BoxWalk& walk, int64_t n, const void* from, void* to) {
  launch(queue, blocks_for(queue, n), cuda_threads, copy_box<T>, walk, n, static_cast<const T*>(from),
         static_cast<T*>(to));
}

template <class T>
void combine_typed(CudaQueue& queue, const BoxWalk& walk, int64_t n, Combine combine, const void* from, void* to) {
  launch(queue, blocks_for(queue, n), cuda_threads, combine_box<T>, walk, n, combine, static_cast<const T*>(from),
         static_cast<T*>(to));
}

}  // namespace

void run_box_cuda(void* handle, const BoxWalk& walk, DType dtype, Combine combine, const void* from, void* to) {
  CudaQueue& queue = *static_cast<CudaQueue*>(handle);
  int64_t n = walk.run, width = bytes_of(dtype);
  for (int d = 0; d < walk.dims; ++d) n *= walk.size[size_t(d)];
  if (n == 0) return;
  if (combine != Combine::copy) {
    if (dtype == DType::bfloat16) return combine_typed<BFloat16>(queue, walk, n, combine, from, to);
    if (dtype == DType::float16) return combine_typed<Float16>(queue, walk, n, combine, from, to);
    visit_dtype(dtype, [&]<class T>(Tag<T>) { combine_typed<T>(queue, walk, n, combine, from, to); });
  } else if (walk.dims == 0) {
    ok(cudaMemcpyAsync(static_cast<std::byte*>(to) + walk.to_begin * width,
                       static_cast<const std::byte*>(from) + walk.from_begin * width, size_t(n * width),
                       cudaMemcpyDefault, queue.stream),
       "a move");
  } else if (width == 1) {
    copy<uint8_t>(queue, walk, n, from, to);
  } else if (width == 2) {
    copy<uint16_t>(queue, walk, n, from, to);
  } else if (width == 4) {
    copy<uint32_t>(queue, walk, n, from, to);
  } else {
    copy<uint64_t>(queue, walk, n, from, to);
  }
}

void zero_cuda(void* handle, void* memory, size_t bytes) {
  ok(cudaMemsetAsync(memory, 0, bytes, static_cast<CudaQueue*>(handle)->stream), "a move");
}

}  // namespace sluice
