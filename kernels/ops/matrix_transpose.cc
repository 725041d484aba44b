// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/rule.h"
#include "kernels/strided.h"

namespace sluice::ops {
namespace {

std::array<int64_t, rank_max> transposed_strides(const Call& call) {
  auto stride = row_strides(call.in[0]);
  size_t rank = size_t(call.in[0].rank);
  std::swap(stride[rank - 1], stride[rank - 2]);
  return stride;
}

}  // namespace

#ifdef __CUDACC__
void matrix_transpose_cuda(const Call& call) { copy_strided_cuda(call, transposed_strides(call)); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]"}, {"float[2,3,4b]"}, {"int32[5,3]"}};

void run(const Call& call) { copy_strided(call.out[0], call.in[0].data, transposed_strides(call), call.threads); }

TensorId transposed(Builder& build, TensorId x) {
  NodeId producer = build.graph().tensor(x).producer;
  if (producer >= 0 && build.graph().nodes[size_t(producer)].op == "matrix_transpose")
    return build.graph().nodes[size_t(producer)].inputs[0];
  return build.op("matrix_transpose", {x});
}

// The transpose of a product is the product of the transposes, which are views: a weight used as x @ w.mT gets its
// gradient in its own layout, and nothing is copied. The product that this replaces is dead then.
TensorId transposed_gradient(Builder& build, TensorId grad) {
  NodeId producer = build.graph().tensor(grad).producer;
  if (producer >= 0 && build.graph().nodes[size_t(producer)].op == "matmul") {
    auto factors = build.graph().nodes[size_t(producer)].inputs;
    if (build.type(factors[0]).shape.size() >= 2 && build.type(factors[1]).shape.size() >= 2) {
      TensorId right = transposed(build, factors[1]);
      return build.op("matmul", {right, transposed(build, factors[0])});
    }
  }
  if (producer >= 0 && build.graph().nodes[size_t(producer)].op == "matmul_over_rows") {
    auto factors = build.graph().nodes[size_t(producer)].inputs;
    return build.op("matmul_over_rows", {factors[1], factors[0]});
  }
  return transposed(build, grad);
}

}  // namespace

[[gnu::weak]] DeviceKernel matrix_transpose_cuda;

extern constinit const OpDef matrix_transpose{
    .name = "matrix_transpose",
    .doc = "`x` with its last two dims swapped.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*mn->*nm", .linear = 1},
    .grad = [](GradArgs& args) { args.result[0] = transposed_gradient(args.build, args.grad[0]); },
    .cpu = run,
    .cuda = matrix_transpose_cuda,
    .view = ViewKind::swap,
};
#endif

}  // namespace sluice::ops
