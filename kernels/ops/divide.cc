// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Divide {
  template <class T>
  constexpr T operator()(T x, T y) const {
    return x / y;
  }
};

}  // namespace

#ifdef __CUDACC__
void divide_cuda(const Call& call) { float_map_cuda<Divide, 2>(call); }
#else
namespace {

constexpr Sample samples[] = {
    {"float[4b,5] float[4b,5]>0.5"}, {"float[4b,5] float[]>0.5"}, {"float[3,1] float[5]>0.5"}};

}  // namespace

[[gnu::weak]] DeviceKernel divide_cuda;

extern constinit const OpDef divide{
    .name = "divide",
    .doc = "The quotient of `x` and `y`, element by element.",
    .samples = samples,
    .inputs = "x,y",
    .rule = {.index = "*,*->*", .linear = 2, .partial_mask = 1, .promote_mask = 3, .types = types_float},
    .grad =
        [](GradArgs& args) {
          auto& b = args.build;
          TensorId slope = b.op("divide", {args.grad[0], args.in(1)});
          args.result[0] = b.unbroadcast(slope, args.in(0));
          args.result[1] = b.unbroadcast(b.op("negative", {b.op("multiply", {slope, args.out(0)})}), args.in(1));
        },
    .tile = tile_of<Divide, 2>(),
    .cuda = divide_cuda,
    .alias = 3,
    .method = true,
};
#endif

}  // namespace sluice::ops
