// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/rule.h"

namespace sluice::ops {
namespace {

constexpr AttrDef attrs[] = {{AttrDef::shape, "shape", "The dims to count.", ""},
                             {AttrDef::dtype, "dtype", "The dtype of the count.", "dtype:float32"}};
constexpr Sample samples[] = {{"", "shape=shape[4b,5]"}, {"", "shape=shape[3] dtype=dtype:float64"}};

std::vector<LogicalType> types(const RuleArgs& args) {
  DType dtype = attr<DType>(*args.attrs, "dtype");
  if (!is_compute_float(dtype)) refuse(args, Code::type, "counts in float32 or float64");
  numel(attr<Shape>(*args.attrs, "shape"));
  return {{dtype, {}}};
}

void run(const Call& call) {
  double count = 1;
  for (auto& dim : call.attr<Shape>("shape"))
    count *=
        double(dim.sym == fixed_sym || !call.window ? dim.size : dim.granule * call.window->whole[size_t(dim.sym)]);
  if (call.out[0].dtype == DType::float32)
    *call.out[0].as<float>() = float(count);
  else
    *call.out[0].as<double>() = count;
}

}  // namespace

extern constinit const OpDef count{
    .name = "count",
    .doc = "The number of elements of a shape in the whole batch of this step: means divide by it.",
    .samples = samples,
    .inputs = "",
    .attrs = attrs,
    .rule = {.types = types},
    .cpu = run,
    .hidden = true,
};

}  // namespace sluice::ops
