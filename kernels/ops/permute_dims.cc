// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/build.h"
#include "kernels/rule.h"
#include "kernels/strided.h"

namespace sluice::ops {
namespace {

std::array<int64_t, rank_max> permuted_strides(const Call& call) {
  auto& axes = call.attr<std::vector<int64_t>>("axes");
  auto from = row_strides(call.in[0]);
  std::array<int64_t, rank_max> stride{};
  for (size_t d = 0; d < axes.size(); ++d) stride[d] = from[size_t(axes[d] < 0 ? axes[d] + call.in[0].rank : axes[d])];
  return stride;
}

}  // namespace

#ifdef __CUDACC__
void permute_dims_cuda(const Call& call) { copy_strided_cuda(call, permuted_strides(call)); }
#else
namespace {

constexpr AttrDef attrs[] = {{AttrDef::integers, "axes", "For each dim of the result, the dim of `x` it is.", ""}};
constexpr Sample samples[] = {
    {"float[4b,5,2]", "axes=[2,0,1]"}, {"float[3,4b]", "axes=[1,0]"}, {"int8[2,3,1,5]", "axes=[-1,0,2,1]"}};

std::vector<int> order_of(const RuleArgs& args) {
  auto& axes = attr<std::vector<int64_t>>(*args.attrs, "axes");
  int rank = int(args.in[0].shape.size());
  std::vector<bool> seen(size_t(rank), false);
  std::vector<int> order;
  for (int64_t axis : axes) {
    order.push_back(resolve_axis(args, axis, rank));
    if (seen[size_t(order.back())]) refuse(args, Code::value, fmt::format("axis {} is named twice", axis));
    seen[size_t(order.back())] = true;
  }
  if (axes.size() != size_t(rank))
    refuse(args, Code::value, fmt::format("`axes` names {} dims of {}", axes.size(), rank));
  return order;
}

std::vector<LogicalType> types(const RuleArgs& args) {
  LogicalType out{args.in[0].dtype, {}};
  for (int d : order_of(args)) out.shape.push_back(args.in[0].shape[size_t(d)]);
  return {out};
}

std::vector<Signature> signatures(const RuleArgs& args) {
  std::vector<Signature> list;
  auto order = order_of(args);
  for (size_t d = 0; d < order.size(); ++d) list.push_back({{Sbp::split(order[d])}, {Sbp::split(int(d))}});
  list.push_back({{Sbp::partial()}, {Sbp::partial()}});
  return list;
}

void run(const Call& call) { copy_strided(call.out[0], call.in[0].data, permuted_strides(call), call.threads); }

}  // namespace

[[gnu::weak]] DeviceKernel permute_dims_cuda;

extern constinit const OpDef permute_dims{
    .name = "permute_dims",
    .doc = "`x` with its dims in another order.",
    .samples = samples,
    .inputs = "x",
    .attrs = attrs,
    .rule = {.types = types, .signatures = signatures},
    .grad =
        [](GradArgs& args) {
          auto& axes = attr<std::vector<int64_t>>(args.node.attrs, "axes");
          std::vector<int64_t> back(axes.size());
          for (size_t d = 0; d < axes.size(); ++d)
            back[size_t(axes[d] < 0 ? axes[d] + int64_t(axes.size()) : axes[d])] = int64_t(d);
          args.result[0] = args.build.op("permute_dims", {args.grad[0]}, {{"axes", back}});
        },
    .cpu = run,
    .cuda = permute_dims_cuda,
    .method = true,
};
#endif

}  // namespace sluice::ops
