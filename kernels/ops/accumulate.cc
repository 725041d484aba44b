// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/parallel.h"
#include "kernels/rule.h"
#include "kernels/simd.h"
#include "kernels/strided.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct AccumulateAdd {
  template <class T>
  constexpr T operator()(T x, T y) const {
    return wrapped(x, y, [](auto a, auto b) { return a + b; });
  }
};

}  // namespace

#ifdef __CUDACC__
// The first micro-batch is copied, the others are added to what is there.
void accumulate_cuda(const Call& call) {
  if (call.micro_batch == 0) return copy_same_cuda(call);
  View operands[] = {call.out[0], call.in[0]};
  Call sum = call;
  sum.in = operands;
  number_map_cuda<AccumulateAdd, 2>(sum);
}
#else
namespace {

std::vector<LogicalType> types(const RuleArgs& args) {
  for (auto& type : args.in)
    for (auto& dim : type.shape)
      if (dim.sym != fixed_sym)
        refuse(args, Code::value, "micro-batches of a tensor with a batch dim are parts of it, not summands");
  return types_number(args);
}

template <class T>
void add(T* out, const T* in, int64_t n) {
  vectorized([=] {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = AccumulateAdd{}(out[i], in[i]);
  });
}

void cpu(const Call& call) {
  const View &in = call.in[0], &out = call.out[0];
  visit_dtype(out.dtype, [&]<class T>(Tag<T>) {
    if constexpr (!std::is_same_v<T, bool>)
      parallel_for(call.threads, out.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
        if (call.micro_batch == 0)
          std::memmove(out.as<T>() + begin, in.as<T>() + begin, size_t(end - begin) * sizeof(T));
        else
          add(out.as<T>() + begin, in.as<T>() + begin, end - begin);
      });
  });
}

constexpr Sample samples[] = {{"float[5,7]"}, {"float[]"}, {"int32[6]"}};

}  // namespace

[[gnu::weak]] DeviceKernel accumulate_cuda;

extern constinit const OpDef accumulate{
    .name = "accumulate",
    .doc = "The sum of `x` over the micro-batches of a step.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*->*", .linear = 1, .types = types},
    .cpu = cpu,
    .cuda = accumulate_cuda,
    .rate = Rate::accumulate,
    .hidden = true,
};
#endif

}  // namespace sluice::ops
