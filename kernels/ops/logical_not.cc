// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct LogicalNot {
  constexpr bool operator()(bool x) const { return !x; }
};

}  // namespace

#ifdef __CUDACC__
void logical_not_cuda(const Call& call) { map_cuda<LogicalNot, bool, bool>(call); }
#else
namespace {

constexpr Sample samples[] = {{"bool[4b,5]"}};

}  // namespace

[[gnu::weak]] DeviceKernel logical_not_cuda;

extern constinit const OpDef logical_not{
    .name = "logical_not",
    .doc = "Whether `x` is false, element by element.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*->*", .types = types_bool},
    .cpu =
        [](const Call& call) { tile_detail::run_map<LogicalNot, bool, bool>(call, nullptr, std::index_sequence<0>{}); },
    .cuda = logical_not_cuda,
    .alias = 1,
    .method = true,
};
#endif

}  // namespace sluice::ops
