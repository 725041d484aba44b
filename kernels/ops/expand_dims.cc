// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/rule.h"
#include "kernels/strided.h"

namespace sluice::ops {
namespace {

constexpr AttrDef attrs[] = {{AttrDef::integer, "axis", "Where the new dim stands in the result.", "0"}};
constexpr Sample samples[] = {{"float[4b,5]", "axis=1"}, {"float[4b,5]", "axis=-1"}, {"int32[]", ""}};

int axis_of(const RuleArgs& args) {
  return resolve_axis(args, attr<int64_t>(*args.attrs, "axis"), int(args.in[0].shape.size()) + 1);
}

std::vector<LogicalType> types(const RuleArgs& args) {
  LogicalType out = args.in[0];
  out.shape.insert(out.shape.begin() + axis_of(args), Dim{1});
  return {out};
}

std::vector<Signature> signatures(const RuleArgs& args) {
  std::vector<Signature> list;
  int axis = axis_of(args);
  for (int d = 0; d < int(args.in[0].shape.size()); ++d)
    list.push_back({{Sbp::split(d)}, {Sbp::split(d < axis ? d : d + 1)}});
  list.push_back({{Sbp::partial()}, {Sbp::partial()}});
  return list;
}

}  // namespace

extern constinit const OpDef expand_dims{
    .name = "expand_dims",
    .doc = "`x` with a new dim of size 1.",
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
