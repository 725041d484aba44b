// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/lane_math.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Log {
  template <class T>
  constexpr T operator()(T x) const {
    return lane_log(x);
  }
};

}  // namespace

#ifdef __CUDACC__
void log_cuda(const Call& call) { float_map_cuda<Log, 1>(call); }
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]>0.2"}};

}  // namespace

[[gnu::weak]] DeviceKernel log_cuda;

extern constinit const OpDef log{
    .name = "log",
    .doc = "The natural logarithm of each element of `x`.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*->*", .types = types_float},
    .grad =
        [](GradArgs& args) {
          args.result[0] = args.build.op("divide", {args.grad[0], args.in(0)});
        },
    .tile = tile_of<Log, 1>(),
    .cuda = log_cuda,
    .alias = 1,
    .method = true,
};
#endif

}  // namespace sluice::ops
