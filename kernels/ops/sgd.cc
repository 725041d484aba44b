// SPDX-License-Identifier: Apache-2.0
#include "kernels/lane_math.h"
#include "kernels/optimizer.h"
#include "kernels/parallel.h"
#include "kernels/rule.h"
#include "kernels/simd.h"

namespace sluice::ops {
namespace {

struct Step {
  double lr, momentum, take, weight_decay;  // take: how much of the gradient enters the buffer
  bool nesterov;
};

template <class T>
void part(const Call& call, const Step& step, int64_t begin, int64_t n) {
  const T *p = call.in[0].as<T>() + begin, *g = call.in[1].as<T>() + begin, *b = call.in[2].as<T>() + begin;
  T *p_out = call.out[0].as<T>() + begin, *b_out = call.out[1].as<T>() + begin;
  T lr = T(step.lr), momentum = T(step.momentum), take = T(step.take), decay = T(step.weight_decay);
  if (momentum == 0) {
    vectorized([=] {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) p_out[i] = p[i] - lr * (g[i] + decay * p[i]);
    });
    if (b_out != b) std::copy_n(b, n, b_out);  // nothing uses it
    return;
  }
  T direct = step.nesterov ? T(1) : T(0), by = step.nesterov ? momentum : T(1);
  vectorized([=] {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      T gradient = g[i] + decay * p[i];
      T buffer = momentum * b[i] + take * gradient;
      b_out[i] = buffer;
      p_out[i] = p[i] - lr * (direct * gradient + by * buffer);
    }
  });
}

void cpu(const Call& call) {
  // PyTorch's first buffer is the whole gradient; later ones take it dampened.
  double take = call.step == 0 ? 1 : 1 - call.attr<double>("dampening");
  Step step{call.attr<double>("lr"), call.attr<double>("momentum"), take, call.attr<double>("weight_decay"),
            call.attr<bool>("nesterov")};
  constexpr int64_t line = 64;  // elements
  parallel_for(
      call.threads, call.out[0].numel(), 1 << 15,
      [&](int64_t begin, int64_t end) {
        if (call.out[0].dtype == DType::float32)
          part<float>(call, step, begin, end - begin);
        else
          part<double>(call, step, begin, end - begin);
      },
      line);
}

std::vector<LogicalType> types(const RuleArgs& args) {
  if (attr<bool>(*args.attrs, "nesterov") &&
      (attr<double>(*args.attrs, "momentum") <= 0 || attr<double>(*args.attrs, "dampening") != 0))
    refuse(args, Code::value, "nesterov needs a momentum and no dampening");
  return optimizer_types(args);
}

constexpr AttrDef attrs[] = {
    {AttrDef::real, "lr", "The learning rate.", "0.001"},
    {AttrDef::real, "momentum", "How much of the last update stays.", "0.0"},
    {AttrDef::real, "dampening", "How much less than the whole gradient enters the momentum.", "0.0"},
    {AttrDef::real, "weight_decay", "The weight of the parameter in the gradient.", "0.0"},
    {AttrDef::boolean, "nesterov", "Look ahead by the momentum.", "false"},
};
constexpr StateDef states[] = {{"momentum_buffer", 2, 1}};
constexpr Sample samples[] = {
    {"float[5,7] float[5,7] float[5,7]", "lr=0.1"},
    {"float[5,7] float[5,7] float[5,7]", "lr=0.1 momentum=0.9 dampening=0.5 weight_decay=0.1"},
    {"float[4] float[4] float[4]", "lr=0.1 momentum=0.9 nesterov=true"},
};

}  // namespace

extern constinit const OpDef sgd{
    .name = "sgd",
    .doc = "One step of stochastic gradient descent with momentum, as torch.optim.SGD.",
    .samples = samples,
    .inputs = "param,grad,momentum_buffer",
    .attrs = attrs,
    .rule = {.types = types, .signatures = optimizer_signatures},
    .cpu = cpu,
    .alias = 1,
    .states = states,
    .hidden = true,
};

}  // namespace sluice::ops
