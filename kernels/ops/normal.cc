// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "kernels/generator.h"

namespace sluice::ops {
namespace {

std::vector<LogicalType> types(const RuleArgs& args) {
  if (!(attr<double>(*args.attrs, "std") >= 0)) refuse(args, Code::value, "std is negative");
  return generator_types(args);
}

// Box-Muller. An element has a whole block of the generator for itself: two numbers of 53 bits.
double standard(const RandomKey& key, uint64_t index) {
  Philox4 bits = key.block(index);
  auto unit = [](uint32_t high, uint32_t low) { return double((uint64_t(high) << 32 | low) >> 11) * 0x1p-53; };
  double radius = std::sqrt(-2 * std::log(1 - unit(bits[0], bits[1])));  // 1 - [0,1) is never 0
  return radius * std::cos(2 * std::numbers::pi * unit(bits[2], bits[3]));
}

void cpu(const Call& call) {
  double mean = call.attr<double>("mean"), std = call.attr<double>("std");
  generate(call, [=](const RandomKey& key, uint64_t index) { return mean + std * standard(key, index); });
}

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

extern constinit const OpDef normal{
    .name = "normal",
    .doc = "Random numbers of the normal distribution.",
    .samples = samples,
    .inputs = "",
    .attrs = attrs,
    .rule = {.types = types, .signatures = generator_signatures},
    .cpu = cpu,
    .random = true,
};

}  // namespace sluice::ops
