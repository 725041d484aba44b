// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Relu {
  template <class T>
  constexpr T operator()(T x) const {
    return x < T(0) ? T(0) : x;
  }
};

}  // namespace

#ifdef __CUDACC__
void relu_cuda(const Call& call) { number_map_cuda<Relu, 1>(call); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]"}, {"int32[7]"}};

}  // namespace

[[gnu::weak]] DeviceKernel relu_cuda;

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
    .cuda = relu_cuda,
    .alias = 1,
    .method = true,
};
#endif

}  // namespace sluice::ops
