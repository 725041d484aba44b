// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Relu {
  template <class T>
  T operator()(T x) const {
    return x < T(0) ? T(0) : x;
  }
};

constexpr Sample samples[] = {{"float[4b,5]"}, {"int32[7]"}};

}  // namespace

extern constinit const OpDef relu{
    .name = "relu",
    .doc = "`x` where it is positive, else 0. At 0 the gradient is 0.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*->*", .types = types_number},
    .grad =
        [](GradArgs& args) {
          args.result[0] = args.build.op("relu_grad", {args.out(0), args.grad[0]});
        },
    .tile = tile_of<Relu, 1>(),
    .cpu = number_map<Relu, 1>,
    .alias = 1,
    .method = true,
};

}  // namespace sluice::ops
