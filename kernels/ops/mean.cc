// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/reduce-inl.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {

#ifdef __CUDACC__
void mean_cuda(const Call& call) {
  DividedBy finish{reduced_count(call)};
  if (call.in[0].dtype == DType::float32)
    reduce_cuda<ReduceSum, float, float>(call, finish);
  else
    reduce_cuda<ReduceSum, double, double>(call, finish);
}
#else
namespace {

constexpr Sample samples[] = {{"float[4b,5]"},
                              {"float[4b,5]", "axis=[0]"},
                              {"float[4b,5]", "axis=[1] keepdims=true"},
                              {"float[2,4b,3,2]", "axis=[1,-1]"},
                              {"float[2,1,3,2]", "axis=[0,2]"}};

std::vector<LogicalType> types(const RuleArgs& args) {
  if (!is_compute_float(args.in[0].dtype)) refuse(args, Code::type, "needs float32 or float64", "convert with astype");
  return types_reduce(args);
}

std::vector<Signature> signatures(const RuleArgs& args) { return signatures_reduce(args, Sbp::partial()); }

// Divides by the count of the whole batch, so that the parts of a split batch add up to the mean.
template <class T>
void run_typed(const Call& call) {
  Reducer<ReduceSum, T, T>(call).run();
  T* out = call.out[0].as<T>();
  T count = T(reduced_count(call));
  for (int64_t i = 0, n = call.out[0].numel(); i < n; ++i) out[i] /= count;
}

void run(const Call& call) {
  if (call.in[0].dtype == DType::float32)
    run_typed<float>(call);
  else
    run_typed<double>(call);
}

}  // namespace

[[gnu::weak]] DeviceKernel mean_cuda;

extern constinit const OpDef mean{
    .name = "mean",
    .doc = "The mean over the dims `axis`: over the whole batch, also where a rank or a micro-batch holds a part.",
    .samples = samples,
    .inputs = "x",
    .attrs = reduce_attrs,
    .rule = {.types = types, .signatures = signatures},
    .grad =
        [](GradArgs& args) {
          auto& b = args.build;
          Attrs attrs{{"shape", lost_shape(b, args.node)}, {"dtype", b.type(args.grad[0]).dtype}};
          TensorId share = b.op("divide", {args.grad[0], b.op("count", {}, attrs)});
          args.result[0] = unreduced(b, args.node, share);
        },
    .cpu = run,
    .cuda = mean_cuda,
    .cost =
        [](std::span<const LogicalType> in, std::span<const LogicalType> out, const Attrs&) {
          double n = double(numel(in[0].shape));
          return Cost{n, n * double(bytes_of(in[0].dtype)) + double(numel(out[0].shape) * bytes_of(out[0].dtype))};
        },
    .method = true,
};
#endif

}  // namespace sluice::ops
