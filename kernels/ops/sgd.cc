// SPDX-License-Identifier: Apache-2.0
#include "kernels/lane_math.h"
#include "kernels/optimizer.h"
#include "kernels/parallel.h"
#include "kernels/rule.h"
#include "kernels/simd.h"
#ifdef __CUDACC__
#include "kernels/device/cuda_queue.h"
#endif

namespace sluice::ops {
namespace {

struct SgdStep {
  double lr, momentum, take, weight_decay;  // take: how much of the gradient enters the buffer
  bool nesterov;
};

SgdStep step_of(const Call& call) {
  // PyTorch's first buffer is the whole gradient; later ones take it dampened.
  double take = call.step == 0 ? 1 : 1 - call.attr<double>("dampening");
  return {call.attr<double>("lr"), call.attr<double>("momentum"), take, call.attr<double>("weight_decay"),
          call.attr<bool>("nesterov")};
}

// The update of one element, with a momentum or without.
template <class T, bool with_momentum>
struct SgdRule {
  T lr, momentum, take, decay, direct, by;
  constexpr explicit SgdRule(const SgdStep& step)
      : lr(T(step.lr)),
        momentum(T(step.momentum)),
        take(T(step.take)),
        decay(T(step.weight_decay)),
        direct(step.nesterov ? T(1) : T(0)),
        by(step.nesterov ? momentum : T(1)) {}
  constexpr T operator()(T p, T g) const { return p - lr * (g + decay * p); }
  constexpr void operator()(T p, T g, T b, T& p_out, T& b_out) const {
    T gradient = g + decay * p;
    T buffer = momentum * b + take * gradient;
    b_out = buffer;
    p_out = p - lr * (direct * gradient + by * buffer);
  }
};

}  // namespace

#ifdef __CUDACC__
namespace {

template <class T, bool with_momentum>
__global__ void sgd_update(SgdRule<T, with_momentum> rule, int64_t n, const T* p, const T* g, const T* b, T* p_out,
                           T* b_out) {
  for (int64_t i = thread_index(); i < n; i += thread_stride()) {
    T next = 0, buffer = b[i];
    if constexpr (with_momentum)
      rule(p[i], g[i], b[i], next, buffer);
    else
      next = rule(p[i], g[i]);
    p_out[i] = next;
    b_out[i] = buffer;
  }
}

template <class T, bool with_momentum>
void run_sgd(const Call& call) {
  CudaQueue& queue = queue_of(call);
  int64_t n = call.out[0].numel();
  if (n == 0) return;
  launch(queue, blocks_for(queue, n), cuda_threads, sgd_update<T, with_momentum>,
         SgdRule<T, with_momentum>(step_of(call)), n, call.in[0].as<const T>(), call.in[1].as<const T>(),
         call.in[2].as<const T>(), call.out[0].as<T>(), call.out[1].as<T>());
}

}  // namespace

void sgd_cuda(const Call& call) {
  bool with_momentum = call.attr<double>("momentum") != 0;
  if (call.out[0].dtype == DType::float32)
    with_momentum ? run_sgd<float, true>(call) : run_sgd<float, false>(call);
  else
    with_momentum ? run_sgd<double, true>(call) : run_sgd<double, false>(call);
}
#else
namespace {

template <class T>
void part(const Call& call, const SgdStep& step, int64_t begin, int64_t n) {
  const T *p = call.in[0].as<T>() + begin, *g = call.in[1].as<T>() + begin, *b = call.in[2].as<T>() + begin;
  T *p_out = call.out[0].as<T>() + begin, *b_out = call.out[1].as<T>() + begin;
  if (step.momentum == 0) {
    SgdRule<T, false> rule(step);
    vectorized([=] {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) p_out[i] = rule(p[i], g[i]);
    });
    if (b_out != b) std::copy_n(b, n, b_out);  // nothing uses it
    return;
  }
  SgdRule<T, true> rule(step);
  vectorized([=] {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) rule(p[i], g[i], b[i], p_out[i], b_out[i]);
  });
}

void cpu(const Call& call) {
  SgdStep step = step_of(call);
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

[[gnu::weak]] DeviceKernel sgd_cuda;

extern constinit const OpDef sgd{
    .name = "sgd",
    .doc = "One step of stochastic gradient descent with momentum, as torch.optim.SGD.",
    .samples = samples,
    .inputs = "param,grad,momentum_buffer",
    .attrs = attrs,
    .rule = {.types = types, .signatures = optimizer_signatures},
    .cpu = cpu,
    .cuda = sgd_cuda,
    .alias = 1,
    .states = states,
    .hidden = true,
};

#endif

}  // namespace sluice::ops
