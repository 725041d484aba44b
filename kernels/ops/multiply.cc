// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Multiply {
  template <class T>
  constexpr T operator()(T x, T y) const {
    return wrapped(x, y, [](auto a, auto b) { return a * b; });
  }
};

}  // namespace

#ifdef __CUDACC__
void multiply_cuda(const Call& call) { number_map_cuda<Multiply, 2>(call); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5] float[4b,5]"},
                              {"float[4b,5] float[5]"},
                              {"float[] float[2,3]"},
                              {"int32[7] int32[7]"},
                              {"int16[3,1] int16[5]"}};

}  // namespace

[[gnu::weak]] DeviceKernel multiply_cuda;

extern constinit const OpDef multiply{
    .name = "multiply",
    .doc = "The product of `x` and `y`, element by element.",
    .samples = samples,
    .inputs = "x,y",
    .rule = {.index = "*,*->*", .linear = 2, .promote_mask = 3, .types = types_number},
    .grad =
        [](GradArgs& args) {
          for (size_t i = 0; i < 2; ++i)
            args.result[i] =
                args.build.unbroadcast(args.build.op("multiply", {args.grad[0], args.in(1 - i)}), args.in(i));
        },
    .tile = tile_of<Multiply, 2>(),
    .cpu = number_map<Multiply, 2>,
    .cuda = multiply_cuda,
    .alias = 3,
    .method = true,
};
#endif

}  // namespace sluice::ops
