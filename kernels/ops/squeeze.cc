// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/build.h"
#include "kernels/rule.h"
#include "kernels/strided.h"

namespace sluice::ops {
namespace {

constexpr AttrDef attrs[] = {{AttrDef::integers, "axis", "The dims to drop; each has size 1.", ""}};
constexpr Sample samples[] = {
    {"float[4b,1,5]", "axis=[1]"}, {"float[1,4b,1]", "axis=[0,-1]"}, {"int32[1]", "axis=[0]"}};

std::vector<bool> dropped_dims(const RuleArgs& args) {
  int rank = int(args.in[0].shape.size());
  std::vector<bool> dropped(size_t(rank), false);
  for (int64_t axis : attr<std::vector<int64_t>>(*args.attrs, "axis")) {
    auto d = size_t(resolve_axis(args, axis, rank));
    auto& dim = args.in[0].shape[d];
    if (dim.size != 1 || dim.sym != fixed_sym) refuse(args, Code::value, fmt::format("dim {} has not size 1", d));
    if (dropped[d]) refuse(args, Code::value, fmt::format("axis {} is named twice", axis));
    dropped[d] = true;
  }
  return dropped;
}

std::vector<LogicalType> types(const RuleArgs& args) {
  auto dropped = dropped_dims(args);
  LogicalType out{args.in[0].dtype, {}};
  for (size_t d = 0; d < dropped.size(); ++d)
    if (!dropped[d]) out.shape.push_back(args.in[0].shape[d]);
  return {out};
}

std::vector<Signature> signatures(const RuleArgs& args) {
  auto dropped = dropped_dims(args);
  std::vector<Signature> list;
  int out = 0;
  for (size_t d = 0; d < dropped.size(); ++d)
    if (!dropped[d]) list.push_back({{Sbp::split(int(d))}, {Sbp::split(out++)}});
  list.push_back({{Sbp::partial()}, {Sbp::partial()}});
  return list;
}

}  // namespace

extern constinit const OpDef squeeze{
    .name = "squeeze",
    .doc = "`x` without some of its dims of size 1.",
    .samples = samples,
    .inputs = "x",
    .attrs = attrs,
    .rule = {.types = types, .signatures = signatures},
    .grad =
        [](GradArgs& args) {
          Attrs same{{"shape", args.build.type(args.in(0)).shape}};
          args.result[0] = args.build.op("reshape", {args.grad[0]}, same);
        },
    .cpu = copy_same,
    .cuda = copy_same_cuda,
    .alias = 1,
    .view = ViewKind::same,
};

}  // namespace sluice::ops
