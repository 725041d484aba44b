// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/lane_math.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Exp {
  template <class T>
  constexpr T operator()(T x) const {
    return lane_exp(x);
  }
};

}  // namespace

#ifdef __CUDACC__
void exp_cuda(const Call& call) { float_map_cuda<Exp, 1>(call); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]"}};

}  // namespace

[[gnu::weak]] DeviceKernel exp_cuda;

extern constinit const OpDef exp{
    .name = "exp",
    .doc = "The exponential of each element of `x`.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*->*", .types = types_float},
    .grad =
        [](GradArgs& args) {
          args.result[0] = args.build.op("multiply", {args.grad[0], args.out(0)});
        },
    .tile = tile_of<Exp, 1>(),
    .cuda = exp_cuda,
    .alias = 1,
    .method = true,
};
#endif

}  // namespace sluice::ops
