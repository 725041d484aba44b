// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/reduce-inl.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {

#ifdef __CUDACC__
void sum_cuda(const Call& call) {
  visit_dtype(call.in[0].dtype, [&]<class T>(Tag<T>) {
    if constexpr (!std::is_same_v<T, bool>)
      reduce_cuda<ReduceSum, T, std::conditional_t<std::is_floating_point_v<T>, T, int64_t>>(call);
  });
}
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]"},
                              {"float[4b,5]", "axis=[0]"},
                              {"float[4b,5]", "axis=[1] keepdims=true"},
                              {"float[2,4b,3,2]", "axis=[1,-1]"},
                              {"float[2,1,3,2]", "axis=[0,2]"},
                              {"int32[4b,5]", "axis=[0]"},
                              {"uint8[300]<200"}};

std::vector<LogicalType> types(const RuleArgs& args) {
  DType dtype = args.in[0].dtype;
  if (!computes(dtype) || dtype == DType::bool_) refuse(args, Code::type, "needs numbers", "convert with astype");
  auto out = types_reduce(args);
  if (is_integer(dtype)) out[0].dtype = DType::int64;
  return out;
}

std::vector<Signature> signatures(const RuleArgs& args) { return signatures_reduce(args, Sbp::partial()); }

void run(const Call& call) {
  visit_dtype(call.in[0].dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_floating_point_v<T>)
      Reducer<ReduceSum, T, T>(call).run();
    else if constexpr (!std::is_same_v<T, bool>)
      Reducer<ReduceSum, T, int64_t>(call).run();
  });
}

}  // namespace

[[gnu::weak]] DeviceKernel sum_cuda;

extern constinit const OpDef sum{
    .name = "sum",
    .doc = "The sum over the dims `axis`. Integers are summed as int64.",
    .samples = samples,
    .inputs = "x",
    .attrs = reduce_attrs,
    .rule = {.types = types, .signatures = signatures},
    .grad = [](GradArgs& args) { args.result[0] = unreduced(args.build, args.node, args.grad[0]); },
    .cpu = run,
    .cuda = sum_cuda,
    .cost =
        [](std::span<const LogicalType> in, std::span<const LogicalType> out, const Attrs&) {
          double n = double(numel(in[0].shape));
          return Cost{n, n * double(bytes_of(in[0].dtype)) + double(numel(out[0].shape) * bytes_of(out[0].dtype))};
        },
    .method = true,
};
#endif

}  // namespace sluice::ops
