// SPDX-License-Identifier: Apache-2.0
// What a kernel of nvcc's gets as Call::queue: the stream, and what belongs to it. Seen by nvcc only.
// Thread rule: that of the stream, one thread at a time.
#pragma once
#ifdef SLUICE_EMULATE_CUDA
#include "kernels/device/cuda_emulation.h"  // tests compile kernels for the host
#else
#include <cuda_runtime.h>
#endif

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "kernels/op.h"

namespace sluice {

// A bad operand that a kernel saw. It lies in host memory that the device writes to; the first one stays.
struct CudaFault {
  unsigned taken = 0, ready = 0;
  const char* op = nullptr;  // a string of the host's, passed through
  int64_t row = 0, label = 0, classes = 0;
};

inline std::string fault_text(const CudaFault& fault) {
  return std::string(fault.op) + ": label " + std::to_string(fault.label) + " of row " + std::to_string(fault.row) +
         " is outside of [0, " + std::to_string(fault.classes) + ")";
}

class CudaBlas;  // kernels/gemm.cu
struct CudaBlasDeleter {
  void operator()(CudaBlas*) const;
};

struct CudaQueue {
  cudaStream_t stream = nullptr;
  int ordinal = 0;
  int blocks_max = 1;  // of a kernel that loops over its elements
  // Scratch of kernels that follow each other on this stream: partial sums, a product's workspace.
  std::byte* workspace = nullptr;
  size_t workspace_bytes = 0;
  CudaFault* fault = nullptr;
  std::unique_ptr<CudaBlas, CudaBlasDeleter> blas;  // made by the first product
};

inline CudaQueue& queue_of(const Call& call) { return *static_cast<CudaQueue*>(call.queue); }

// Throws Error(failed): "WHAT: CUDA's words".
void ok(cudaError_t status, std::string_view what);

#ifdef SLUICE_EMULATE_CUDA
inline constexpr bool emulated = true;
#else
inline constexpr bool emulated = false;
#endif

inline constexpr int cuda_threads = 256;  // of a block, where nothing else is said

// Blocks for a loop over n elements.
inline unsigned blocks_for(const CudaQueue& queue, int64_t n, int64_t per_block = cuda_threads) {
  return unsigned(std::clamp<int64_t>((n + per_block - 1) / per_block, 1, queue.blocks_max));
}

// Enqueues a kernel. All of them start here, so that a test can run them on the host (cuda_emulation.h).
#ifndef SLUICE_EMULATE_CUDA
template <class... P, class... A>
void launch(CudaQueue& queue, dim3 blocks, dim3 threads, void (*kernel)(P...), const A&... args) {
  kernel<<<blocks, threads, 0, queue.stream>>>(args...);
}
#else
template <class... P, class... A>
void launch(CudaQueue& queue, dim3 blocks, dim3 threads, void (*kernel)(P...), const A&... args) {
  queue.stream->launch([=](std::ptrdiff_t) { emulate(blocks, threads, [&] { kernel(args...); }); });
}
#endif

// The calling thread's first element, and how far its next one is.
__device__ inline int64_t thread_index() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t thread_stride() { return int64_t(gridDim.x) * blockDim.x; }

__device__ inline void report_label(CudaFault* fault, const char* op, int64_t row, int64_t label, int64_t classes) {
  if (atomicCAS_system(&fault->taken, 0u, 1u) != 0) return;
  fault->op = op;
  fault->row = row;
  fault->label = label;
  fault->classes = classes;
  __threadfence_system();
  *const_cast<volatile unsigned*>(&fault->ready) = 1;
}

}  // namespace sluice
