// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Subtract {
  template <class T>
  constexpr T operator()(T x, T y) const {
    return wrapped(x, y, [](auto a, auto b) { return a - b; });
  }
};

}  // namespace

#ifdef __CUDACC__
void subtract_cuda(const Call& call) { number_map_cuda<Subtract, 2>(call); }
#else
namespace {

constexpr Sample samples[] = {
    {"float[4b,5] float[4b,5]"}, {"float[3,1] float[2,1,5]"}, {"int64[7] int64[]"}, {"uint8[5] uint8[5]"}};

}  // namespace

[[gnu::weak]] DeviceKernel subtract_cuda;

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
    .cuda = subtract_cuda,
    .alias = 3,
    .method = true,
};
#endif

}  // namespace sluice::ops
