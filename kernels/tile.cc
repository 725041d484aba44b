// SPDX-License-Identifier: Apache-2.0
#include "kernels/tile.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/parallel.h"

namespace sluice {
namespace {

constexpr int64_t parallel_elements_min = 1 << 15;  // a thread's share

// Row-major strides of an input, aligned to the output's dims at the right; 0 where it is broadcast.
void stride_of(const View& in, const View& out, std::array<int64_t, rank_max>& stride) {
  int64_t step = 1;
  stride.fill(0);
  for (int d = in.rank - 1; d >= 0; --d) {
    int o = d + out.rank - in.rank;
    check(o >= 0, "an element-wise kernel got an input of higher rank than its output");
    check(in.dims[size_t(d)] == 1 || in.dims[size_t(d)] == out.dims[size_t(o)],
          "an element-wise kernel got an input that does not broadcast");
    stride[size_t(o)] = in.dims[size_t(d)] == 1 ? 0 : step;
    step *= in.dims[size_t(d)];
  }
}

// Dims d and d + 1 are one loop when every input steps through both as through one.
bool mergeable(const TileLoops& loops, int d) {
  for (size_t i = 0; i < loops.inputs; ++i)
    if (loops.stride[i][size_t(d)] != loops.stride[i][size_t(d) + 1] * loops.size[size_t(d) + 1]) return false;
  return true;
}

void remove_dim(TileLoops& loops, int d, bool keep_inner) {
  if (keep_inner && d + 1 < loops.rank) loops.size[size_t(d) + 1] *= loops.size[size_t(d)];
  for (int e = d; e + 1 < loops.rank; ++e) {
    loops.size[size_t(e)] = loops.size[size_t(e) + 1];
    for (size_t i = 0; i < loops.inputs; ++i) loops.stride[i][size_t(e)] = loops.stride[i][size_t(e) + 1];
  }
  --loops.rank;
}

// Elements [begin, begin + n) of row `row`, where a row is the innermost loop.
void run_part(const Call& call, const TileLoops& loops, const RowKernel& kernel, int64_t row, int64_t begin,
              int64_t n) {
  int last = loops.rank - 1;
  int64_t length = last < 0 ? 1 : loops.size[size_t(last)];
  std::array<int64_t, tile_inputs_max> offset{};
  uint32_t scalar_mask = 0;
  int64_t rest = row;
  for (int d = last - 1; d >= 0; --d) {
    int64_t at = rest % loops.size[size_t(d)];
    rest /= loops.size[size_t(d)];
    for (size_t i = 0; i < loops.inputs; ++i) offset[i] += at * loops.stride[i][size_t(d)];
  }
  std::array<const void*, tile_inputs_max> in{};
  for (size_t i = 0; i < loops.inputs; ++i) {
    bool scalar = last < 0 || loops.stride[i][size_t(last)] == 0;
    scalar_mask |= uint32_t(scalar) << i;
    in[i] = call.in[i].as<const char>() + (offset[i] + (scalar ? 0 : begin)) * bytes_of(call.in[i].dtype);
  }
  kernel(call.out[0].as<char>() + (row * length + begin) * bytes_of(call.out[0].dtype), in.data(), n, scalar_mask);
}

template <class T, class F>
void run_block(const Call& call, F block, const double* params) {
  run_rows(call, [&](void* out, const void* const* in, int64_t n, uint32_t scalar_mask) {
    std::array<const T*, tile_inputs_max> typed{};
    for (size_t i = 0; i < call.in.size(); ++i) typed[i] = static_cast<const T*>(in[i]);
    block(static_cast<T*>(out), typed.data(), n, scalar_mask, params);
  });
}

}  // namespace

TileLoops tile_loops(const Call& call) {
  const View& out = call.out[0];
  TileLoops loops;
  loops.rank = out.rank;
  loops.inputs = call.in.size();
  check(loops.inputs <= tile_inputs_max, "an element-wise kernel has too many inputs");
  for (int d = 0; d < out.rank; ++d) loops.size[size_t(d)] = out.dims[size_t(d)];
  for (size_t i = 0; i < loops.inputs; ++i) stride_of(call.in[i], out, loops.stride[i]);
  for (int d = loops.rank - 1; d >= 0; --d)
    if (loops.size[size_t(d)] == 1) remove_dim(loops, d, false);
  for (int d = loops.rank - 2; d >= 0; --d)
    if (mergeable(loops, d)) remove_dim(loops, d, true);
  return loops;
}

void run_rows(const Call& call, const RowKernel& row) {
  int64_t total = call.out[0].numel();
  if (total == 0) return;
  TileLoops loops = tile_loops(call);
  int64_t length = loops.rank == 0 ? 1 : loops.size[size_t(loops.rank) - 1], rows = total / length;
  if (rows >= call.threads) {
    int64_t grain = std::max<int64_t>(parallel_elements_min / length, 1);
    return parallel_for(call.threads, rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) run_part(call, loops, row, r, 0, length);
    });
  }
  constexpr int64_t line = 64;  // elements: threads begin on cache lines of their own
  for (int64_t r = 0; r < rows; ++r)
    parallel_for(
        call.threads, length, parallel_elements_min,
        [&](int64_t begin, int64_t end) { run_part(call, loops, row, r, begin, end - begin); }, line);
}

std::vector<double> tile_params(const OpDef& op, const Attrs& attrs) {
  std::vector<double> params;
  for (auto& def : op.attrs) {
    if (def.kind == AttrDef::boolean) params.push_back(attr<bool>(attrs, def.name) ? 1 : 0);
    if (def.kind == AttrDef::integer) params.push_back(double(attr<int64_t>(attrs, def.name)));
    if (def.kind == AttrDef::real) params.push_back(attr<double>(attrs, def.name));
  }
  return params;
}

void run_tile(const OpDef& op, const Tile& tile, const Call& call) {
  DType dtype = call.out[0].dtype;
  for (auto& in : call.in)
    if (in.dtype != dtype) throw Error(Code::type, fmt::format("{}: the operands' dtypes differ", op.name));
  std::vector<double> params = tile_params(op, *call.attrs);
  if (dtype == DType::float32 && tile.f32)
    run_block<float>(call, tile.f32, params.data());
  else if (dtype == DType::float64 && tile.f64)
    run_block<double>(call, tile.f64, params.data());
  else
    throw Error(Code::type, fmt::format("{} has no CPU kernel for {}", op.name, name_of(dtype)));
}

}  // namespace sluice
