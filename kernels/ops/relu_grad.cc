// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct ReluGrad {
  template <class T>
  constexpr T operator()(T y, T g) const {
    return y > T(0) ? g : T(0);
  }
};

}  // namespace

#ifdef __CUDACC__
void relu_grad_cuda(const Call& call) { float_map_cuda<ReluGrad, 2>(call); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5] float[4b,5]"}};

}  // namespace

[[gnu::weak]] DeviceKernel relu_grad_cuda;

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
    .cuda = relu_grad_cuda,
    .alias = 3,
    .hidden = true,
};
#endif

}  // namespace sluice::ops
