// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cuda_queue.h"
#include "kernels/optimizer.h"

namespace sluice {
namespace {

template <class T>
struct AdamOperands {
  const T *p, *g, *m, *v;
  T *p_out, *m_out, *v_out;
};

// The step lies on the device: one thread of a block makes the powers from it.
template <class T>
__global__ void adam_update(AdamStep step, const float* count, int64_t n, AdamOperands<T> at) {
  __shared__ double made[2];
  if (threadIdx.x == 0) {
    step.set_step(*count + 1);
    made[0] = step.rate;
    made[1] = step.root;
  }
  __syncthreads();
  step.rate = made[0];
  step.root = made[1];
  AdamRule<T> rule(step);
  for (int64_t i = thread_index(); i < n; i += thread_stride()) {
    T p, m, v;
    rule(at.p[i], at.g[i], at.m[i], at.v[i], p, m, v);
    at.p_out[i] = p;
    at.m_out[i] = m;
    at.v_out[i] = v;
  }
}

// After all blocks of the update have read the step: it may be the same memory.
__global__ void next_step(const float* count, float* out) { *out = *count + 1; }

template <class T>
void run(const Call& call, bool decoupled) {
  CudaQueue& queue = queue_of(call);
  int64_t n = call.out[0].numel();
  AdamOperands<T> operands{call.in[0].as<T>(),  call.in[1].as<T>(),  call.in[2].as<T>(), call.in[3].as<T>(),
                           call.out[0].as<T>(), call.out[1].as<T>(), call.out[2].as<T>()};
  const float* count = call.in[4].as<const float>();
  if (n > 0)
    launch(queue, blocks_for(queue, n), cuda_threads, adam_update<T>, adam_step(call, decoupled), count, n, operands);
  launch(queue, 1, 1, next_step, count, call.out[3].as<float>());
}

}  // namespace

void adam_cuda(const Call& call) {
  call.out[0].dtype == DType::float32 ? run<float>(call, false) : run<double>(call, false);
}
void adamw_cuda(const Call& call) {
  call.out[0].dtype == DType::float32 ? run<float>(call, true) : run<double>(call, true);
}

}  // namespace sluice
