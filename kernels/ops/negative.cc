// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Negative {
  template <class T>
  constexpr T operator()(T x) const {
    return wrapped(T(0), x, [](auto, auto b) { return -b; });
  }
};

}  // namespace

#ifdef __CUDACC__
void negative_cuda(const Call& call) { number_map_cuda<Negative, 1>(call); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]"}, {"int32[7]"}};

}  // namespace

[[gnu::weak]] DeviceKernel negative_cuda;

extern constinit const OpDef negative{
    .name = "negative",
    .doc = "Each element of `x` with its sign changed.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*->*", .linear = 1, .types = types_number},
    .grad = [](GradArgs& args) { args.result[0] = args.build.op("negative", {args.grad[0]}); },
    .tile = tile_of<Negative, 1>(),
    .cpu = number_map<Negative, 1>,
    .cuda = negative_cuda,
    .alias = 1,
    .method = true,
};
#endif

}  // namespace sluice::ops
