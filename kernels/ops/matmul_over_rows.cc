// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/gemm.h"
#include "kernels/rule.h"

namespace sluice::ops {
namespace {

Gemm outer_products(const Call& call) {
  const View &a = call.in[0], &b = call.in[1];
  int64_t m = a.dims[size_t(a.rank - 1)], n = b.dims[size_t(b.rank - 1)], rows = 1;
  for (int d = 0; d < a.rank - 1; ++d) rows *= a.dims[size_t(d)];
  return {.m = m, .n = n, .k = rows, .a_col = true};
}

}  // namespace

#ifdef __CUDACC__
void matmul_over_rows_cuda(const Call& call) {
  gemm_cuda(call.queue, call.out[0].dtype, outer_products(call), {}, call.in[0].data, call.in[1].data,
            call.out[0].data);
}
#else
namespace {

void grad(GradArgs& g) {
  Builder& build = g.build;
  g.result[0] = build.op("matmul", {g.in(1), build.op("matrix_transpose", {g.grad[0]})});
  g.result[1] = build.op("matmul", {g.in(0), g.grad[0]});
}

std::vector<LogicalType> types(const RuleArgs& args) {
  auto &a = args.in[0].shape, &b = args.in[1].shape;
  if (a.empty() || a.size() != b.size() || !std::equal(a.begin(), a.end() - 1, b.begin()))
    refuse(args, Code::value, "all dims but the last must agree");
  return types_number(args);
}

void cpu(const Call& call) {
  gemm(call.out[0].dtype, outer_products(call), call.in[0].data, call.in[1].data, call.out[0].data, call.threads);
}

Cost cost(std::span<const LogicalType> in, std::span<const LogicalType> out, const Attrs&) {
  Cost cost;
  cost.flops = 2.0 * double(numel(in[0].shape)) * double(in[1].shape.back().size);
  for (auto list : {in, out})
    for (auto& type : list) cost.bytes += double(numel(type.shape)) * double(bytes_of(type.dtype));
  return cost;
}

constexpr Sample samples[] = {
    {"float[4b,2,3] float[4b,2,5]"}, {"float[2,4b,3] float[2,4b,5]"}, {"float[6,3] float[6,2]"}};

}  // namespace

[[gnu::weak]] DeviceKernel matmul_over_rows_cuda;

extern constinit const OpDef matmul_over_rows{
    .name = "matmul_over_rows",
    .doc = "The sum over all leading dims of the outer products of a[...,m] and b[...,n]: a weight's gradient.",
    .samples = samples,
    .inputs = "a,b",
    .rule = {.index = "*m,*n->mn", .linear = 2, .types = types},
    .grad = grad,
    .cpu = cpu,
    .cuda = matmul_over_rows_cuda,
    .cost = cost,
    .hidden = true,
};

#endif

}  // namespace sluice::ops
