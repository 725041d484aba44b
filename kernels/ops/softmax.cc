// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax.h"

#include "kernels/build.h"

namespace sluice::ops {
namespace {

// y * (g - sum(g * y))
void grad(GradArgs& g) {
  Builder& build = g.build;
  std::vector<int64_t> axis{attr<int64_t>(g.node.attrs, "axis")};
  TensorId weighted = build.op("multiply", {g.grad[0], g.out(0)});
  TensorId total = build.op("sum", {weighted}, {{"axis", axis}, {"keepdims", true}});
  g.result[0] = build.op("multiply", {g.out(0), build.op("subtract", {g.grad[0], total})});
}

constexpr AttrDef attrs[] = {{AttrDef::integer, "axis", "The dim that sums to one.", "-1"}};
constexpr Sample samples[] = {{"float[4b,5]"}, {"float[5,4b,3]", "axis=0"}, {"float[2,3,70]", "axis=1"}};

}  // namespace

extern constinit const OpDef softmax{
    .name = "softmax",
    .doc = "exp(x) divided by its sum along `axis`.",
    .samples = samples,
    .inputs = "x",
    .attrs = attrs,
    .rule = {.types = softmax_types, .signatures = softmax_signatures},
    .grad = grad,
    .cpu = [](const Call& call) { softmax_run(call, false); },
    .cuda = softmax_cuda,
    .alias = 1,
};

}  // namespace sluice::ops
