// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/rule.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

double count_of_call(const Call& call) {
  double count = 1;
  for (auto& dim : call.attr<Shape>("shape"))
    count *=
        double(dim.sym == fixed_sym || !call.window ? dim.size : dim.granule * call.window->whole[size_t(dim.sym)]);
  return count;
}

}  // namespace

#ifdef __CUDACC__
void count_cuda(const Call& call) {
  double count = count_of_call(call);
  if (call.out[0].dtype == DType::float32)
    map_cuda<Always<float>, float>(call, {float(count)});
  else
    map_cuda<Always<double>, double>(call, {count});
}
#else
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
  double count = count_of_call(call);
  if (call.out[0].dtype == DType::float32)
    *call.out[0].as<float>() = float(count);
  else
    *call.out[0].as<double>() = count;
}

}  // namespace

[[gnu::weak]] DeviceKernel count_cuda;

extern constinit const OpDef count{
    .name = "count",
    .doc = "The number of elements of a shape in the whole batch of this step: means divide by it.",
    .samples = samples,
    .inputs = "",
    .attrs = attrs,
    .rule = {.types = types},
    .cpu = run,
    .cuda = count_cuda,
    .hidden = true,
};
#endif

}  // namespace sluice::ops
