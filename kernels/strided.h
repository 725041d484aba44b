// SPDX-License-Identifier: Apache-2.0
// Copies that change the order of elements: transposes, permutations and broadcasts.
// Thread rule: pure but for the buffers.
#pragma once
#include "kernels/op.h"

namespace sluice {

// Fills the dense `out` from `in`, whose step along each dim of `out` is stride[d] elements (0 repeats).
void copy_strided(const View& out, const void* in, const std::array<int64_t, rank_max>& stride, int threads);
// Row-major strides of a view's dims.
std::array<int64_t, rank_max> row_strides(const View& view);
// The kernel of ops that change the shape only.
void copy_same(const Call& call);

// Of the call's output and input 0, enqueued; null in a build without nvcc.
[[gnu::weak]] void copy_strided_cuda(const Call& call, const std::array<int64_t, rank_max>& stride);
[[gnu::weak]] DeviceKernel copy_same_cuda;

}  // namespace sluice
