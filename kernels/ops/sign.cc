// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Sign {
  template <class T>
  constexpr T operator()(T x) const {
    return x != x ? x : T((x > T(0) ? 1 : 0) - (x < T(0) ? 1 : 0));
  }
};

}  // namespace

#ifdef __CUDACC__
void sign_cuda(const Call& call) { number_map_cuda<Sign, 1>(call); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]"}, {"int32[7]"}, {"uint8[3]"}};

}  // namespace

[[gnu::weak]] DeviceKernel sign_cuda;

extern constinit const OpDef sign{
    .name = "sign",
    .doc = "-1, 0 or 1 for each element of `x`: its sign. NaN stays NaN.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*->*", .types = types_number},
    .tile = tile_of<Sign, 1>(),
    .cpu = number_map<Sign, 1>,
    .cuda = sign_cuda,
    .alias = 1,
    .method = true,
};
#endif

}  // namespace sluice::ops
