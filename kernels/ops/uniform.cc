// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/generator.h"

namespace sluice::ops {
namespace {

struct UniformDraw {
  double low, width, top;
  constexpr double operator()(const RandomKey& key, uint64_t index) const {
    double x = low + width * key.uniform(index);
    return x < top ? x : top;
  }
};

UniformDraw uniform_draw(const Call& call) {
  double low = call.attr<double>("low"), high = call.attr<double>("high");
  // The largest number below high in the result's dtype: rounding must not reach high.
  double top =
      call.out[0].dtype == DType::float32 ? double(std::nextafter(float(high), float(low))) : std::nextafter(high, low);
  return {low, high - low, top};
}

}  // namespace

#ifdef __CUDACC__
void uniform_cuda(const Call& call) { generate_cuda(call, uniform_draw(call)); }
#else
namespace {

std::vector<LogicalType> types(const RuleArgs& args) {
  double low = attr<double>(*args.attrs, "low"), high = attr<double>(*args.attrs, "high");
  if (!(low <= high)) refuse(args, Code::value, "low is above high");
  return generator_types(args);
}

void cpu(const Call& call) { generate(call, uniform_draw(call)); }

constexpr AttrDef attrs[] = {
    {AttrDef::shape, "shape", "The shape of the result."},
    {AttrDef::real, "low", "The lower end of the range.", "0.0"},
    {AttrDef::real, "high", "The upper end of the range.", "1.0"},
    {AttrDef::dtype, "dtype", "The dtype of the result.", "dtype:float32"},
    {AttrDef::text, "key", "The node whose numbers are drawn; \"\" is this one.", "\"\""},
};
constexpr Sample samples[] = {{"", "shape=[5,7] low=-1.0"},
                              {"", "shape=shape[3,4b,2] dtype=dtype:float64 key=\"layer.weight\""}};

}  // namespace

[[gnu::weak]] DeviceKernel uniform_cuda;

extern constinit const OpDef uniform{
    .name = "uniform",
    .doc = "Random numbers evenly spread over [low, high).",
    .samples = samples,
    .inputs = "",
    .attrs = attrs,
    .rule = {.types = types, .signatures = generator_signatures},
    .cpu = cpu,
    .cuda = uniform_cuda,
    .random = true,
};
#endif

}  // namespace sluice::ops
