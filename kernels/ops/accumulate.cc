// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/parallel.h"
#include "kernels/rule.h"
#include "kernels/simd.h"

namespace sluice::ops {
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
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_integral_v<T>)
        out[i] = T(uint64_t(out[i]) + uint64_t(in[i]));  // wraps
      else
        out[i] += in[i];
    }
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

extern constinit const OpDef accumulate{
    .name = "accumulate",
    .doc = "The sum of `x` over the micro-batches of a step.",
    .samples = samples,
    .inputs = "x",
    .rule = {.index = "*->*", .linear = 1, .types = types},
    .cpu = cpu,
    .rate = Rate::accumulate,
    .hidden = true,
};

}  // namespace sluice::ops
