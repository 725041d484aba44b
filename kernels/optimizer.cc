// SPDX-License-Identifier: Apache-2.0
#include "kernels/optimizer.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/lane_math.h"
#include "kernels/parallel.h"
#include "kernels/rule.h"
#include "kernels/simd.h"

namespace sluice {
namespace {

// Whether input `i` (or the output of the same state) is a scalar state.
bool is_scalar_input(const OpDef& op, size_t i) {
  for (auto& state : op.states)
    if (size_t(state.input) == i) return state.scalar;
  return false;
}
bool is_scalar_output(const OpDef& op, size_t i) {
  for (auto& state : op.states)
    if (size_t(state.output) == i) return state.scalar;
  return false;
}

template <class T>
void adam_part(const Call& call, const AdamStep& step, int64_t begin, int64_t n) {
  const T *p = call.in[0].as<T>() + begin, *g = call.in[1].as<T>() + begin, *m = call.in[2].as<T>() + begin,
          *v = call.in[3].as<T>() + begin;
  T *p_out = call.out[0].as<T>() + begin, *m_out = call.out[1].as<T>() + begin, *v_out = call.out[2].as<T>() + begin;
  AdamRule<T> rule(step);
  vectorized([=] {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) rule(p[i], g[i], m[i], v[i], p_out[i], m_out[i], v_out[i]);
  });
}

}  // namespace

std::vector<LogicalType> optimizer_types(const RuleArgs& args) {
  const LogicalType& param = args.in[0];
  if (!is_compute_float(param.dtype))
    refuse(args, Code::type, "the parameter must be float32 or float64", "convert with astype");
  std::vector<LogicalType> out(1 + args.op->states.size(), param);
  for (size_t i = 1; i < args.in.size(); ++i) {
    LogicalType want = is_scalar_input(*args.op, i) ? LogicalType{DType::float32, {}} : param;
    if (args.in[i] != want)
      refuse(args, Code::value, fmt::format("input {} must be {}, as the parameter demands", i, text_of(want)));
  }
  for (auto& state : args.op->states)
    if (state.scalar) out[size_t(state.output)] = {DType::float32, {}};
  return out;
}

std::vector<Signature> optimizer_signatures(const RuleArgs& args) {
  std::vector<Signature> list;
  for (size_t d = 0; d < args.in[0].shape.size(); ++d) {
    Signature signature;
    for (size_t i = 0; i < args.in.size(); ++i)
      signature.in.push_back(is_scalar_input(*args.op, i) ? Sbp::broadcast() : Sbp::split(int(d)));
    for (size_t i = 0; i < 1 + args.op->states.size(); ++i)
      signature.out.push_back(is_scalar_output(*args.op, i) ? Sbp::broadcast() : Sbp::split(int(d)));
    list.push_back(std::move(signature));
  }
  return list;
}

AdamStep adam_step(const Call& call, bool decoupled) {
  return {call.attr<double>("lr"),  call.attr<double>("beta1"),        call.attr<double>("beta2"),
          call.attr<double>("eps"), call.attr<double>("weight_decay"), decoupled};
}

void adam_run(const Call& call, bool decoupled) {
  float count = *call.in[4].as<float>() + 1;
  AdamStep step = adam_step(call, decoupled);
  step.set_step(count);
  constexpr int64_t line = 64;  // elements
  parallel_for(
      call.threads, call.out[0].numel(), 1 << 15,
      [&](int64_t begin, int64_t end) {
        if (call.out[0].dtype == DType::float32)
          adam_part<float>(call, step, begin, end - begin);
        else
          adam_part<double>(call, step, begin, end - begin);
      },
      line);
  *call.out[3].as<float>() = count;
}

}  // namespace sluice
