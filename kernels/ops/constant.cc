// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "kernels/build.h"
#include "kernels/rule.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {

#ifdef __CUDACC__
void constant_cuda(const Call& call) {
  double value = call.attr<double>("value");
  visit_dtype(call.out[0].dtype, [&]<class T>(Tag<T>) { map_cuda<Always<T>, T>(call, {T(value)}); });
}
#else
namespace {

constexpr AttrDef attrs[] = {{AttrDef::real, "value", "The value.", ""},
                             {AttrDef::dtype, "dtype", "The dtype.", "dtype:float32"}};
constexpr Sample samples[] = {{"", "value=0.5"}, {"", "value=3 dtype=dtype:int64"}};

// A value that the dtype can hold: converting another is undefined.
void check_value(const RuleArgs& args, DType dtype) {
  double value = attr<double>(*args.attrs, "value");
  if (!computes(dtype)) refuse(args, Code::type, fmt::format("does not compute with {}", name_of(dtype)));
  visit_dtype(dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_integral_v<T>)
      if (!(value >= double(std::numeric_limits<T>::min()) && value <= double(std::numeric_limits<T>::max()) &&
            value < 9.2e18))
        refuse(args, Code::value, fmt::format("{} is outside of {}", value, name_of(dtype)));
  });
}

std::vector<LogicalType> types(const RuleArgs& args) {
  DType dtype = attr<DType>(*args.attrs, "dtype");
  check_value(args, dtype);
  return {{dtype, {}}};
}

void run(const Call& call) {
  double value = call.attr<double>("value");
  visit_dtype(call.out[0].dtype,
              [&]<class T>(Tag<T>) { std::fill_n(call.out[0].as<T>(), call.out[0].numel(), T(value)); });
}

}  // namespace

[[gnu::weak]] DeviceKernel constant_cuda;

extern constinit const OpDef constant{
    .name = "constant",
    .doc = "A scalar of a fixed value.",
    .samples = samples,
    .inputs = "",
    .attrs = attrs,
    .rule = {.types = types},
    .cpu = run,
    .cuda = constant_cuda,
    .hidden = true,
};
#endif

}  // namespace sluice::ops
