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

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  double rate, root;  // lr / (1 - beta1^step), sqrt(1 - beta2^step)
  bool decoupled;
};

template <class T>
void adam_part(const Call& call, const AdamStep& step, int64_t begin, int64_t n) {
  const T *p = call.in[0].as<T>() + begin, *g = call.in[1].as<T>() + begin, *m = call.in[2].as<T>() + begin,
          *v = call.in[3].as<T>() + begin;
  T *p_out = call.out[0].as<T>() + begin, *m_out = call.out[1].as<T>() + begin, *v_out = call.out[2].as<T>() + begin;
  T keep = step.decoupled ? T(1 - step.lr * step.weight_decay) : T(1);
  T decay = step.decoupled ? T(0) : T(step.weight_decay);
  T one_beta1 = T(1 - step.beta1), beta2 = T(step.beta2), one_beta2 = T(1 - step.beta2);
  T rate = T(step.rate), root = T(step.root), eps = T(step.eps);
  vectorized([=] {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      T gradient = g[i] + decay * p[i];
      T mean = m[i] + (gradient - m[i]) * one_beta1;
      T square = v[i] * beta2 + gradient * gradient * one_beta2;
      m_out[i] = mean;
      v_out[i] = square;
      p_out[i] = p[i] * keep - rate * mean / (lane_sqrt(square) / root + eps);
    }
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

void adam_run(const Call& call, bool decoupled) {
  float count = *call.in[4].as<float>() + 1;
  AdamStep step{call.attr<double>("lr"),
                call.attr<double>("beta1"),
                call.attr<double>("beta2"),
                call.attr<double>("eps"),
                call.attr<double>("weight_decay"),
                0,
                0,
                decoupled};
  step.rate = step.lr / (1 - std::pow(step.beta1, double(count)));
  step.root = std::sqrt(1 - std::pow(step.beta2, double(count)));
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
