// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "kernels/build.h"
#include "kernels/rule.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {

#ifdef __CUDACC__
void full_cuda(const Call& call) {
  double value = call.attr<double>("fill_value");
  visit_dtype(call.out[0].dtype, [&]<class T>(Tag<T>) { map_cuda<Always<T>, T>(call, {T(value)}); });
}
#else
namespace {

constexpr AttrDef attrs[] = {{AttrDef::shape, "shape", "The shape.", ""},
                             {AttrDef::real, "fill_value", "The value of all elements.", ""},
                             {AttrDef::dtype, "dtype", "The dtype.", "dtype:float32"}};
constexpr Sample samples[] = {{"", "shape=shape[4b,5] fill_value=0.5"},
                              {"", "shape=shape[3] fill_value=-2 dtype=dtype:int32"}};

// A value that the dtype can hold: converting another is undefined.
void check_value(const RuleArgs& args, DType dtype) {
  double value = attr<double>(*args.attrs, "fill_value");
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
  return {{dtype, attr<Shape>(*args.attrs, "shape")}};
}

std::vector<Signature> signatures(const RuleArgs& args) {
  std::vector<Signature> list;
  for (size_t d = 0; d < attr<Shape>(*args.attrs, "shape").size(); ++d) list.push_back({{}, {Sbp::split(int(d))}});
  return list;
}

void run(const Call& call) {
  double value = call.attr<double>("fill_value");
  visit_dtype(call.out[0].dtype,
              [&]<class T>(Tag<T>) { std::fill_n(call.out[0].as<T>(), call.out[0].numel(), T(value)); });
}

}  // namespace

[[gnu::weak]] DeviceKernel full_cuda;

extern constinit const OpDef full{
    .name = "full",
    .doc = "A tensor whose elements all have one value.",
    .samples = samples,
    .inputs = "",
    .attrs = attrs,
    .rule = {.types = types, .signatures = signatures},
    .cpu = run,
    .cuda = full_cuda,
};
#endif

}  // namespace sluice::ops
