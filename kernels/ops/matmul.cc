// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "kernels/build.h"
#include "kernels/gemm.h"
#include "kernels/parallel.h"
#include "kernels/rule.h"

namespace sluice {
namespace {

// The leading dims of a product: how far each operand steps for one more in each of them, in matrices.
struct Batch {
  int rank = 0;
  int64_t count = 1;
  std::array<int64_t, rank_max> size{};
  std::array<std::array<int64_t, rank_max>, 2> stride{};  // 0 repeats

  // Which matrix of operand `i` output matrix `index` takes.
  int64_t at(int i, int64_t index) const {
    int64_t matrix = 0;
    for (int d = rank - 1; d >= 0; --d) {
      matrix += index % size[size_t(d)] * stride[size_t(i)][size_t(d)];
      index /= size[size_t(d)];
    }
    return matrix;
  }
};

Batch batch_of(const Call& call) {
  const View& out = call.out[0];
  Batch batch;
  batch.rank = out.rank - 2;
  for (int d = 0; d < batch.rank; ++d) batch.count *= batch.size[size_t(d)] = out.dims[size_t(d)];
  for (size_t i = 0; i < 2; ++i) {
    int64_t step = 1;
    const View& in = call.in[i];
    for (int d = in.rank - 3; d >= 0; --d) {
      int64_t size = in.dims[size_t(d)];
      batch.stride[i][size_t(d + out.rank - in.rank)] = size == 1 ? 0 : step;
      step *= size;
    }
  }
  return batch;
}

int64_t last(const View& view, int from_end) { return view.dims[size_t(view.rank - from_end)]; }

struct BatchedProduct {
  Gemm shape;
  Batch batch;
};

BatchedProduct product_of(const Call& call) {
  const View &a = call.in[0], &b = call.in[1];
  check(!call.out[0].col, "matmul writes row layout");
  BatchedProduct product{{.m = last(a, 2), .n = last(b, 1), .k = last(a, 1), .a_col = a.col, .b_col = b.col},
                         batch_of(call)};
  auto& [shape, batch] = product;
  // One right matrix for all: the left ones are one tall matrix.
  bool tall = !a.col && b.numel() == shape.k * shape.n && a.numel() == batch.count * shape.m * shape.k;
  if (tall) {
    shape.m *= batch.count;
    batch = {};
  }
  return product;
}

}  // namespace

#ifdef __CUDACC__
namespace ops {
// The trailing dims through which both operands step evenly are one batch of cuBLASLt's, the others a loop.
void matmul_cuda(const Call& call) {
  auto [shape, batch] = product_of(call);
  auto even = [&batch = batch](int d) {
    for (auto& stride : batch.stride)
      if (stride[size_t(d)] != stride[size_t(d) + 1] * batch.size[size_t(d) + 1]) return false;
    return true;
  };
  int inner = batch.rank - 1;
  while (inner > 0 && even(inner - 1)) --inner;
  GemmBatch steps{.out_step = shape.m * shape.n};
  for (int d = std::max(inner, 0); d < batch.rank; ++d) steps.count *= batch.size[size_t(d)];
  if (batch.rank > 0) {
    steps.a_step = batch.stride[0][size_t(batch.rank) - 1] * shape.m * shape.k;
    steps.b_step = batch.stride[1][size_t(batch.rank) - 1] * shape.k * shape.n;
  }
  int64_t bytes = bytes_of(call.out[0].dtype);
  for (int64_t i = 0; i < batch.count; i += std::max<int64_t>(steps.count, 1))
    gemm_cuda(call.queue, call.out[0].dtype, shape, steps,
              call.in[0].as<char>() + batch.at(0, i) * shape.m * shape.k * bytes,
              call.in[1].as<char>() + batch.at(1, i) * shape.k * shape.n * bytes,
              call.out[0].as<char>() + i * shape.m * shape.n * bytes);
}
}  // namespace ops
#else
namespace {

// A right matrix without leading dims is the usual weight: its gradient is one product over all rows of `a`, so that
// no tensor of a weight for each leading index comes to be.
void grad(GradArgs& g) {
  Builder& build = g.build;
  size_t a_rank = build.type(g.in(0)).shape.size(), b_rank = build.type(g.in(1)).shape.size();
  TensorId b_t = build.op("matrix_transpose", {g.in(1)});
  g.result[0] = build.unbroadcast(build.op("matmul", {g.grad[0], b_t}), g.in(0));
  if (b_rank == 2 && a_rank > 2) {
    g.result[1] = build.op("matmul_over_rows", {g.in(0), g.grad[0]});
  } else {
    TensorId a_t = build.op("matrix_transpose", {g.in(0)});
    g.result[1] = build.unbroadcast(build.op("matmul", {a_t, g.grad[0]}), g.in(1));
  }
}

void cpu(const Call& call) {
  const View &a = call.in[0], &b = call.in[1], &out = call.out[0];
  auto [shape, batch] = product_of(call);
  if (batch.rank == 0) return gemm(out.dtype, shape, a.data, b.data, out.data, call.threads);
  int64_t bytes = bytes_of(out.dtype);
  auto one = [&, &shape = shape, &batch = batch](int64_t index, int threads) {
    gemm(out.dtype, shape, a.as<char>() + batch.at(0, index) * shape.m * shape.k * bytes,
         b.as<char>() + batch.at(1, index) * shape.k * shape.n * bytes,
         out.as<char>() + index * shape.m * shape.n * bytes, threads);
  };
  if (batch.count < call.threads) {
    for (int64_t i = 0; i < batch.count; ++i) one(i, call.threads);
    return;
  }
  int64_t flops = std::max<int64_t>(2 * shape.m * shape.n * shape.k, 1);
  parallel_for(call.threads, batch.count, std::max<int64_t>(1'000'000 / flops, 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) one(i, 1);
  });
}

Cost cost(std::span<const LogicalType> in, std::span<const LogicalType> out, const Attrs&) {
  Cost cost;
  cost.flops = 2.0 * double(numel(out[0].shape)) * double(in[0].shape.back().size);
  for (auto list : {in, out})
    for (auto& type : list) cost.bytes += double(numel(type.shape)) * double(bytes_of(type.dtype));
  return cost;
}

constexpr Sample samples[] = {
    {"float[4b,5] float[5,6]"},     {"float[3,1] float[1,7]"},   {"float[2,3,4] float[2,4,5]"},
    {"float[4b,2,3,4] float[4,5]"}, {"float[3,4] float[2,4,5]"}, {"float[2,1,3,4] float[5,4,2]"},
    {"int32[3,4]<9 int32[4,2]<9"},
};

}  // namespace

namespace ops {
[[gnu::weak]] DeviceKernel matmul_cuda;

extern constinit const OpDef matmul{
    .name = "matmul",
    .doc = "Matrix product of a[...,m,k] and b[...,k,n]; leading dims are broadcast.",
    .samples = samples,
    .inputs = "a,b",
    .rule = {.index = "*mk,*kn->*mn", .linear = 2, .promote_mask = 3, .types = types_number},
    .grad = grad,
    .cpu = cpu,
    .cuda = matmul_cuda,
    .col_mask = 3,
    .cost = cost,
    .method = true,
};
}  // namespace ops
#endif

}  // namespace sluice
