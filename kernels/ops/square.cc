// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Square {
  template <class T>
  constexpr T operator()(T x) const {
    return wrapped(x, x, [](auto a, auto b) { return a * b; });
  }
};

}  // namespace

#ifdef __CUDACC__
void square_cuda(const Call& call) { number_map_cuda<Square, 1>(call); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]"}, {"int32[7]"}};

}  // namespace

[[gnu::weak]] DeviceKernel square_cuda;

extern constinit const OpDef square{
    .name = "square",
    .doc = "Each element of `x` times itself.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*->*", .types = types_number},
    .grad =
        [](GradArgs& args) {
          auto& b = args.build;
          TensorId twice = b.op("multiply", {args.in(0), b.constant(2, b.type(args.in(0)).dtype)});
          args.result[0] = b.op("multiply", {args.grad[0], twice});
        },
    .tile = tile_of<Square, 1>(),
    .cpu = number_map<Square, 1>,
    .cuda = square_cuda,
    .alias = 1,
    .method = true,
};
#endif

}  // namespace sluice::ops
