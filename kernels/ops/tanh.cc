// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/lane_math.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Tanh {
  template <class T>
  constexpr T operator()(T x) const {
    return lane_tanh(x);
  }
};

}  // namespace

#ifdef __CUDACC__
void tanh_cuda(const Call& call) { float_map_cuda<Tanh, 1>(call); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]"}};

}  // namespace

[[gnu::weak]] DeviceKernel tanh_cuda;

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
    .cuda = tanh_cuda,
    .alias = 1,
    .method = true,
};
#endif

}  // namespace sluice::ops
