// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct ReluGrad {
  template <class T>
  T operator()(T y, T g) const {
    return y > T(0) ? g : T(0);
  }
};

constexpr Sample samples[] = {{"float[4b,5] float[4b,5]"}};

}  // namespace

extern constinit const OpDef relu_grad{
    .name = "relu_grad",
    .doc = "The gradient `g` of relu where its output `y` is positive, else 0.",
    .samples = samples,
    .inputs = "y,g",
    .rule = {.index = "*,*->*", .linear = 2, .partial_mask = 2, .types = types_float},
    .grad =
        [](GradArgs& args) {
          args.result[1] = args.build.op("relu_grad", {args.in(0), args.grad[0]});
        },
    .tile = tile_of<ReluGrad, 2>(),
    .alias = 3,
    .hidden = true,
};

}  // namespace sluice::ops
