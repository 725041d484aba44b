// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/lane_math.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Tanh {
  template <class T>
  T operator()(T x) const {
    return lane_tanh(x);
  }
};

constexpr Sample samples[] = {{"float[4b,5]"}};

}  // namespace

extern constinit const OpDef tanh{
    .name = "tanh",
    .doc = "The hyperbolic tangent of each element of `x`.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*->*", .types = types_float},
    .grad =
        [](GradArgs& args) {
          auto& b = args.build;
          TensorId part = b.op("multiply", {args.grad[0], b.op("square", {args.out(0)})});
          args.result[0] = b.op("subtract", {args.grad[0], part});
        },
    .tile = tile_of<Tanh, 1>(),
    .alias = 1,
    .method = true,
};

}  // namespace sluice::ops
