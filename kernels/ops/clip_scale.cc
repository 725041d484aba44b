// SPDX-License-Identifier: Apache-2.0
#include "kernels/lane_math.h"
#include "kernels/rule.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

// As torch.nn.utils.clip_grad_norm_: a norm that is not finite makes the scale so, and the step's numbers show it.
struct ClipScale {
  double max_norm;
  template <class T>
  constexpr T operator()(T sum_of_squares) const {
    double scale = max_norm / (lane_sqrt(double(sum_of_squares)) + 1e-6);
    return T(scale > 1 ? 1 : scale);
  }
};

}  // namespace

#ifdef __CUDACC__
void clip_scale_cuda(const Call& call) {
  ClipScale scale{call.attr<double>("max_norm")};
  if (call.out[0].dtype == DType::float32)
    map_cuda<ClipScale, float, float>(call, scale);
  else
    map_cuda<ClipScale, double, double>(call, scale);
}
#else
namespace {

std::vector<LogicalType> types(const RuleArgs& args) {
  if (!(attr<double>(*args.attrs, "max_norm") > 0)) refuse(args, Code::value, "max_norm is not positive");
  if (!args.in[0].shape.empty()) refuse(args, Code::value, "needs the sum of all squares, a scalar");
  if (!is_compute_float(args.in[0].dtype)) refuse(args, Code::type, "needs float32 or float64", "convert with astype");
  return {args.in[0]};
}

template <class T>
void run(const Call& call) {
  *call.out[0].as<T>() = ClipScale{call.attr<double>("max_norm")}(*call.in[0].as<T>());
}

constexpr AttrDef attrs[] = {{AttrDef::real, "max_norm", "The largest norm that passes unscaled."}};
constexpr Sample samples[] = {{"float[]>0.1", "max_norm=0.5"}};

}  // namespace

[[gnu::weak]] DeviceKernel clip_scale_cuda;

extern constinit const OpDef clip_scale{
    .name = "clip_scale",
    .doc = "What gradients are multiplied by so that their norm is at most `max_norm`, from the sum of their squares.",
    .samples = samples,
    .inputs = "sum_of_squares",
    .attrs = attrs,
    .rule = {.types = types},
    .cpu = [](const Call& call) { call.out[0].dtype == DType::float32 ? run<float>(call) : run<double>(call); },
    .cuda = clip_scale_cuda,
    .hidden = true,
};
#endif

}  // namespace sluice::ops
