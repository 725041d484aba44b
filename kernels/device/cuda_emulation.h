// SPDX-License-Identifier: Apache-2.0
// For tests: as much of CUDA as our kernels use, on the host. The same sources are compiled by g++ then; a block's
// threads take turns on one thread of the host and change places at __syncthreads, blocks follow each other. So index
// arithmetic, shared memory and barriers are tested where there is no GPU; what they cost, and races that need true
// concurrency, are not. Streams are those of the device `sim`: work runs later, after random delays.
// Thread rule: a kernel runs on its stream's thread; each has threadIdx and shared memory of its own.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/device/device.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local

namespace sluice {

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

using cudaStream_t = DeviceStream*;
enum cudaError_t { cudaSuccess };
enum cudaMemcpyKind { cudaMemcpyDefault };

inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  stream->launch([=](std::ptrdiff_t) { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  stream->launch([=](std::ptrdiff_t) { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
inline unsigned atomicCAS_system(unsigned* at, unsigned expected, unsigned value) {
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// The threads of a block on stacks of their own: one that comes to a barrier leaves its stack to wait there, and the
// next thread gets another. So a kernel without barriers takes one stack. Stacks stay for the next block; changing
// between them makes no call of the system.
class EmulatedBlock {
 public:
  void run(dim3 threads, const std::function<void()>& kernel) {
    threads_ = threads;
    count_ = threads.x * threads.y * threads.z;
    kernel_ = &kernel;
    next_ = 0;
    size_t used = 0, waiting = 0;
    while (next_ < count_) enter(used++);
    for (size_t i = 0; i < used; ++i) waiting += !stacks_[i]->done;
    check(waiting == 0 || waiting == count_, "some threads of an emulated block left a barrier to the others");
    while (waiting > 0) {
      size_t ended = 0;
      for (size_t i = 0; i < used; ++i) enter(i), ended += stacks_[i]->done;
      check(ended == 0 || ended == waiting, "some threads of an emulated block left a barrier to the others");
      waiting -= ended;
    }
  }
  void barrier() {
    Stack& stack = *stacks_[at_];
    leave(stack);
    set_thread(stack.thread);
  }
  static EmulatedBlock& mine() {
    static thread_local EmulatedBlock block;
    return block;
  }

 private:
  static constexpr size_t stack_bytes = size_t(64) << 10;
  struct Stack {
    std::unique_ptr<std::byte[]> memory = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
    jmp_buf place;
    unsigned thread = 0;
    bool started = false, done = false;
  };
  void set_thread(unsigned i) {
    threadIdx = dim3(i % threads_.x, i / threads_.x % threads_.y, i / threads_.x / threads_.y);
  }
  void enter(size_t i) {
    if (i == stacks_.size()) stacks_.push_back(std::make_unique<Stack>());
    Stack& stack = *stacks_[i];
    at_ = i;
    stack.done = false;
    if (_setjmp(loop_) != 0) return;
    if (std::exchange(stack.started, true)) _longjmp(stack.place, 1);
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack.memory.get();
    context.uc_stack.ss_size = stack_bytes;
    context.uc_link = nullptr;
    makecontext(
        &context, [] { mine().run_threads(); }, 0);
    setcontext(&context);
  }
  void leave(Stack& stack) {
    if (_setjmp(stack.place) == 0) _longjmp(loop_, 1);
  }
  [[noreturn]] void run_threads() {
    Stack& stack = *stacks_[at_];
    while (true) {
      while (next_ < count_) {
        stack.thread = next_++;
        set_thread(stack.thread);
        (*kernel_)();
      }
      stack.done = true;
      leave(stack);
    }
  }

  dim3 threads_;
  unsigned count_ = 0, next_ = 0;
  const std::function<void()>* kernel_ = nullptr;
  jmp_buf loop_;
  std::vector<std::unique_ptr<Stack>> stacks_;
  size_t at_ = 0;
};
inline void __syncthreads() { EmulatedBlock::mine().barrier(); }

inline void emulate(dim3 blocks, dim3 threads, const std::function<void()>& kernel) {
  gridDim = blocks;
  blockDim = threads;
  for (unsigned y = 0; y < blocks.y; ++y)
    for (unsigned x = 0; x < blocks.x; ++x) {
      blockIdx = dim3(x, y);
      EmulatedBlock::mine().run(threads, kernel);
    }
}

}  // namespace sluice
