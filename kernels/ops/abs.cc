// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Abs {
  template <class T>
  constexpr T operator()(T x) const {
    return x < T(0) ? wrapped(T(0), x, [](auto a, auto b) { return a - b; }) : x + T(0);
  }
};

}  // namespace

#ifdef __CUDACC__
void abs_cuda(const Call& call) { number_map_cuda<Abs, 1>(call); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]"}, {"int32[7]"}};

}  // namespace

[[gnu::weak]] DeviceKernel abs_cuda;

extern constinit const OpDef abs{
    .name = "abs",
    .doc = "The absolute value of each element of `x`.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*->*", .types = types_number},
    .grad =
        [](GradArgs& args) {
          args.result[0] = args.build.op("multiply", {args.grad[0], args.build.op("sign", {args.in(0)})});
        },
    .tile = tile_of<Abs, 1>(),
    .cpu = number_map<Abs, 1>,
    .cuda = abs_cuda,
    .alias = 1,
    .method = true,
};
#endif

}  // namespace sluice::ops
