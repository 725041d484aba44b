// SPDX-License-Identifier: Apache-2.0
// What all optimizers share. Inputs: param, grad, then the states as declared; output 0: the next param, then the next
// states. An output usually is its input's memory (one slot) and may be other memory (staleness).
// Thread rule: pure but for the buffers.
#pragma once
#include <cmath>

#include "kernels/lane_math.h"
#include "kernels/op.h"

namespace sluice {

// param, grad and the states of one type, float32 or float64; scalar states are float32.
std::vector<LogicalType> optimizer_types(const RuleArgs& args);
// The update is element by element: any dim may be split, the scalars are everywhere. A partial gradient is not legal.
std::vector<Signature> optimizer_signatures(const RuleArgs& args);

// Adam's attributes, and what of the step they make: lr / (1 - beta1^step) and sqrt(1 - beta2^step).
struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled;
  double rate = 0, root = 0;

  template <class T>
  constexpr void set_step(T step) {
    rate = lr / (1 - std::pow(beta1, double(step)));
    root = std::sqrt(1 - std::pow(beta2, double(step)));
  }
};
AdamStep adam_step(const Call& call, bool decoupled);

// The update of one element.
template <class T>
struct AdamRule {
  T keep, decay, one_beta1, beta2, one_beta2, rate, root, eps;
  constexpr explicit AdamRule(const AdamStep& step)
      : keep(step.decoupled ? T(1 - step.lr * step.weight_decay) : T(1)),
        decay(step.decoupled ? T(0) : T(step.weight_decay)),
        one_beta1(T(1 - step.beta1)),
        beta2(T(step.beta2)),
        one_beta2(T(1 - step.beta2)),
        rate(T(step.rate)),
        root(T(step.root)),
        eps(T(step.eps)) {}
  constexpr void operator()(T p, T g, T m, T v, T& p_out, T& m_out, T& v_out) const {
    T gradient = g + decay * p;
    T mean = m + (gradient - m) * one_beta1;
    T square = v * beta2 + gradient * gradient * one_beta2;
    m_out = mean;
    v_out = square;
    p_out = p * keep - rate * mean / (lane_sqrt(square) / root + eps);
  }
};

// PyTorch's Adam; decoupled: AdamW.
void adam_run(const Call& call, bool decoupled);

// Enqueued; null in a build without nvcc.
[[gnu::weak]] DeviceKernel adam_cuda;
[[gnu::weak]] DeviceKernel adamw_cuda;

}  // namespace sluice
