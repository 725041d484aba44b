// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Greater {
  template <class T>
  constexpr bool operator()(T x, T y) const {
    return x > y;
  }
};

}  // namespace

#ifdef __CUDACC__
void greater_cuda(const Call& call) { compare_map_cuda<Greater>(call); }
#else
namespace {

constexpr Sample samples[] = {
    {"float[4b,5] float[4b,5]"}, {"float[4b,5] float[]"}, {"int32[7]<3 int32[7]<3"}, {"int64[4b,1]<3 int64[5]<3"}};

}  // namespace

[[gnu::weak]] DeviceKernel greater_cuda;

extern constinit const OpDef greater{
    .name = "greater",
    .doc = "Whether `x` is greater than `y`, element by element; bool.",
    .samples = samples,
    .inputs = "x,y",
    .rule = {.index = "*,*->*", .promote_mask = 3, .types = types_compare},
    .cpu = compare_map<Greater, 2>,
    .cuda = greater_cuda,
    .method = true,
};
#endif

}  // namespace sluice::ops
