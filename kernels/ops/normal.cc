// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "kernels/generator.h"

namespace sluice::ops {
namespace {

// Box-Muller. An element has a whole block of the generator for itself: two numbers of 53 bits.
struct NormalDraw {
  double mean, std;
  static constexpr double unit(uint32_t high, uint32_t low) {
    return double((uint64_t(high) << 32 | low) >> 11) * 0x1p-53;
  }
  template <class Key>
  constexpr double operator()(const Key& key, uint64_t index) const {
    Philox4 bits = key.block(index);
    double radius = std::sqrt(-2 * std::log(1 - unit(bits[0], bits[1])));  // 1 - [0,1) is never 0
    return mean + std * (radius * std::cos(2 * std::numbers::pi * unit(bits[2], bits[3])));
  }
};

NormalDraw normal_draw(const Call& call) { return {call.attr<double>("mean"), call.attr<double>("std")}; }

}  // namespace

#ifdef __CUDACC__
void normal_cuda(const Call& call) { generate_cuda(call, normal_draw(call)); }
#else
namespace {

std::vector<LogicalType> types(const RuleArgs& args) {
  if (!(attr<double>(*args.attrs, "std") >= 0)) refuse(args, Code::value, "std is negative");
  return generator_types(args);
}

void cpu(const Call& call) { generate(call, normal_draw(call)); }

constexpr AttrDef attrs[] = {
    {AttrDef::shape, "shape", "The shape of the result."},
    {AttrDef::real, "mean", "The mean.", "0.0"},
    {AttrDef::real, "std", "The standard deviation.", "1.0"},
    {AttrDef::dtype, "dtype", "The dtype of the result.", "dtype:float32"},
    {AttrDef::text, "key", "The node whose numbers are drawn; \"\" is this one.", "\"\""},
};
constexpr Sample samples[] = {{"", "shape=[5,7] mean=2.0"},
                              {"", "shape=shape[3,4b,2] std=0.02 dtype=dtype:float64 key=\"layer.weight\""}};

}  // namespace

[[gnu::weak]] DeviceKernel normal_cuda;

extern constinit const OpDef normal{
    .name = "normal",
    .doc = "Random numbers of the normal distribution.",
    .samples = samples,
    .inputs = "",
    .attrs = attrs,
    .rule = {.types = types, .signatures = generator_signatures},
    .cpu = cpu,
    .cuda = normal_cuda,
    .random = true,
};
#endif

}  // namespace sluice::ops
