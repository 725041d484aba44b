// SPDX-License-Identifier: Apache-2.0
// Matrix products on the CPU. OpenBLAS does the work of one thread; how a product is cut over the device's team is
// decided here, so that no library starts threads of its own and nothing global changes.
// Thread rule: any thread; the buffers are the caller's.
#pragma once
#include <cstdint>

#include "base/dtype.h"

namespace sluice {

// out[m,n] = a[m,k] @ b[k,n], dense; out is row-major. a_col: a is stored as [k,m]; b_col: b is stored as [n,k].
// k == 0 gives zeros. Integers are summed in their own type and wrap.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  bool a_col = false, b_col = false;
};
void gemm(DType dtype, const Gemm& shape, const void* a, const void* b, void* out, int threads);

// Several products of one shape, each `step` elements after the last; 0 repeats an operand.
struct GemmBatch {
  int64_t count = 1, a_step = 0, b_step = 0, out_step = 0;
};
// Enqueued on DeviceStream::queue(); null in a build without nvcc.
[[gnu::weak]] void gemm_cuda(void* queue, DType dtype, const Gemm& shape, const GemmBatch& batch, const void* a,
                             const void* b, void* out);

}  // namespace sluice
