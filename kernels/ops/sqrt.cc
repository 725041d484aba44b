// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/lane_math.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Sqrt {
  template <class T>
  constexpr T operator()(T x) const {
    return lane_sqrt(x);
  }
};

}  // namespace

#ifdef __CUDACC__
void sqrt_cuda(const Call& call) { float_map_cuda<Sqrt, 1>(call); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]>0.2"}};

}  // namespace

[[gnu::weak]] DeviceKernel sqrt_cuda;

extern constinit const OpDef sqrt{
    .name = "sqrt",
    .doc = "The square root of each element of `x`.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*->*", .types = types_float},
    .grad =
        [](GradArgs& args) {
          auto& b = args.build;
          TensorId half = b.op("divide", {args.grad[0], args.out(0)});
          args.result[0] = b.op("multiply", {half, b.constant(0.5, b.type(half).dtype)});
        },
    .tile = tile_of<Sqrt, 1>(),
    .cuda = sqrt_cuda,
    .alias = 1,
    .method = true,
};
#endif

}  // namespace sluice::ops
