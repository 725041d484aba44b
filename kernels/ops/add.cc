// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Add {
  template <class T>
  constexpr T operator()(T x, T y) const {
    return wrapped(x, y, [](auto a, auto b) { return a + b; });
  }
};

}  // namespace

#ifdef __CUDACC__
void add_cuda(const Call& call) { number_map_cuda<Add, 2>(call); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5] float[4b,5]"},
                              {"float[4b,5] float[5]"},
                              {"float[4b,1,3] float[5,1]"},
                              {"int32[7] int32[7]"},
                              {"uint8[2,3] uint8[]"}};

}  // namespace

[[gnu::weak]] DeviceKernel add_cuda;

extern constinit const OpDef add{
    .name = "add",
    .doc = "The sum of `x` and `y`, element by element.",
    .samples = samples,
    .inputs = "x,y",
    .rule = {.index = "*,*->*", .linear = 1, .promote_mask = 3, .types = types_number},
    .grad =
        [](GradArgs& args) {
          for (size_t i = 0; i < 2; ++i) args.result[i] = args.build.unbroadcast(args.grad[0], args.in(i));
        },
    .tile = tile_of<Add, 2>(),
    .cpu = number_map<Add, 2>,
    .cuda = add_cuda,
    .alias = 3,
    .method = true,
};
#endif

}  // namespace sluice::ops
