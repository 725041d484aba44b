// SPDX-License-Identifier: Apache-2.0
// The tile engine: element-wise kernels over whole tensors with NumPy's broadcasting.
// A *row kernel* does n consecutive output elements; each input is a run of n elements or one scalar. The engine merges
// the dims of a call into as few and as long rows as it can and hands them to threads; it knows no op.
// Invariant: in[i] may be exactly the output's memory; no other overlap.
// Thread rule: pure but for the buffers.
#pragma once
#include <array>
#include <functional>

#include "kernels/op.h"

namespace sluice {

inline constexpr size_t tile_inputs_max = 8;
// out, inputs, elements, bit i: input i is one scalar.
using RowKernel = std::function<void(void* out, const void* const* in, int64_t n, uint32_t scalar_mask)>;

// The output's dims, merged and outermost first, with each input's stride in elements. A stride of 0 repeats.
struct TileLoops {
  int rank = 0;
  size_t inputs = 0;
  std::array<int64_t, rank_max> size{};
  std::array<std::array<int64_t, rank_max>, tile_inputs_max> stride{};  // [input][dim]
};
TileLoops tile_loops(const Call& call);

// Runs `row` over output 0 of the call.
void run_rows(const Call& call, const RowKernel& row);
// Runs the block kernels of `tile` (float32 and float64 operands only; others throw Error(type)).
void run_tile(const OpDef& op, const Tile& tile, const Call& call);
// What a tile gets as `params`: the boolean, integer and real attributes as declared.
std::vector<double> tile_params(const OpDef& op, const Attrs& attrs);

}  // namespace sluice
