// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/softmax.h"

namespace sluice::ops {
namespace {

// g - exp(y) * sum(g)
void grad(GradArgs& g) {
  Builder& build = g.build;
  std::vector<int64_t> axis{attr<int64_t>(g.node.attrs, "axis")};
  TensorId total = build.op("sum", {g.grad[0]}, {{"axis", axis}, {"keepdims", true}});
  TensorId part = build.op("multiply", {build.op("exp", {g.out(0)}), total});
  g.result[0] = build.op("subtract", {g.grad[0], part});
}

constexpr AttrDef attrs[] = {{AttrDef::integer, "axis", "The dim whose exponentials sum to one.", "-1"}};
constexpr Sample samples[] = {{"float[4b,5]"}, {"float[5,4b,3]", "axis=0"}, {"float[2,3,70]", "axis=1"}};

}  // namespace

extern constinit const OpDef log_softmax{
    .name = "log_softmax",
    .doc = "The logarithm of softmax(x) along `axis`, without its overflow.",
    .samples = samples,
    .inputs = "x",
    .attrs = attrs,
    .rule = {.types = softmax_types, .signatures = softmax_signatures},
    .grad = grad,
    .cpu = [](const Call& call) { softmax_run(call, true); },
    .cuda = log_softmax_cuda,
    .alias = 1,
};

}  // namespace sluice::ops
