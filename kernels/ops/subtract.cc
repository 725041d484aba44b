// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Subtract {
  template <class T>
  T operator()(T x, T y) const {
    return wrapped(x, y, [](auto a, auto b) { return a - b; });
  }
};

constexpr Sample samples[] = {
    {"float[4b,5] float[4b,5]"}, {"float[3,1] float[2,1,5]"}, {"int64[7] int64[]"}, {"uint8[5] uint8[5]"}};

}  // namespace

extern constinit const OpDef subtract{
    .name = "subtract",
    .doc = "The difference of `x` and `y`, element by element.",
    .samples = samples,
    .inputs = "x,y",
    .rule = {.index = "*,*->*", .linear = 1, .promote_mask = 3, .types = types_number},
    .grad =
        [](GradArgs& args) {
          args.result[0] = args.build.unbroadcast(args.grad[0], args.in(0));
          args.result[1] = args.build.unbroadcast(args.build.op("negative", {args.grad[0]}), args.in(1));
        },
    .tile = tile_of<Subtract, 2>(),
    .cpu = number_map<Subtract, 2>,
    .alias = 3,
    .method = true,
};

}  // namespace sluice::ops
