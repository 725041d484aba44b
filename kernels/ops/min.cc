// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/reduce-inl.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Min {
  template <class T>
  static constexpr T identity() {
    using Limits = std::numeric_limits<T>;
    return Limits::has_infinity ? T(Limits::infinity()) : Limits::max();
  }
  template <class T>
  constexpr T operator()(T a, T b) const {
    return (a < b) | (a != a) ? a : b;
  }
};

}  // namespace

#ifdef __CUDACC__
void min_cuda(const Call& call) {
  visit_dtype(call.in[0].dtype, [&]<class T>(Tag<T>) {
    if constexpr (!std::is_same_v<T, bool>) reduce_cuda<Min, T, T>(call);
  });
}
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]"},
                              {"float[4b,5]", "axis=[0]"},
                              {"float[4b,5]", "axis=[1] keepdims=true"},
                              {"float[2,4b,3,2]", "axis=[1,-1]"},
                              {"float[2,1,3,2]", "axis=[0,2]"},
                              {"int32[4b,5]", "axis=[0]"}};

std::vector<LogicalType> types(const RuleArgs& args) {
  DType dtype = args.in[0].dtype;
  if (!computes(dtype) || dtype == DType::bool_) refuse(args, Code::type, "needs numbers", "convert with astype");
  auto reduced = reduced_dims(args);
  for (size_t d = 0; d < reduced.size(); ++d)
    if (reduced[d] && args.in[0].shape[d].size == 0) refuse(args, Code::value, "there is no element to choose");
  return types_reduce(args);
}

std::vector<Signature> signatures(const RuleArgs& args) { return signatures_reduce(args, {Sbp::Pmin, -1}); }

void run(const Call& call) {
  visit_dtype(call.in[0].dtype, [&]<class T>(Tag<T>) {
    if constexpr (!std::is_same_v<T, bool>) Reducer<Min, T, T>(call).run();
  });
}

}  // namespace

[[gnu::weak]] DeviceKernel min_cuda;

extern constinit const OpDef min{
    .name = "min",
    .doc = "The smallest element over the dims `axis`; NaN where there is one. Equal ones share the gradient.",
    .samples = samples,
    .inputs = "x",
    .attrs = reduce_attrs,
    .rule = {.types = types, .signatures = signatures},
    .grad =
        [](GradArgs& args) {
          auto& b = args.build;
          DType dtype = b.type(args.out(0)).dtype;
          TensorId best = unreduced(b, args.node, args.out(0));
          TensorId hits = b.op("astype", {b.op("equal", {args.in(0), best})}, {{"dtype", dtype}});
          TensorId count = b.op("sum", {hits}, args.node.attrs);
          TensorId share = b.op("divide", {args.grad[0], count});
          args.result[0] = b.op("multiply", {hits, unreduced(b, args.node, share)});
        },
    .cpu = run,
    .cuda = min_cuda,
    .cost =
        [](std::span<const LogicalType> in, std::span<const LogicalType> out, const Attrs&) {
          double n = double(numel(in[0].shape));
          return Cost{n, n * double(bytes_of(in[0].dtype)) + double(numel(out[0].shape) * bytes_of(out[0].dtype))};
        },
    .method = true,
};
#endif

}  // namespace sluice::ops
