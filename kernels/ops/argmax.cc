// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/reduce.h"

namespace sluice::ops {
namespace {

constexpr Sample samples[] = {{"float[4b,5]", "axis=[-1]"},
                              {"float[4b,5]"},
                              {"float[4b,5]", "axis=[0] keepdims=true"},
                              {"int32[2,4b,3]", "axis=[1]"}};

std::vector<LogicalType> types(const RuleArgs& args) {
  DType dtype = args.in[0].dtype;
  if (!computes(dtype) || dtype == DType::bool_) refuse(args, Code::type, "needs numbers", "convert with astype");
  if (attr<std::vector<int64_t>>(*args.attrs, "axis").size() > 1)
    refuse(args, Code::value, "needs one axis, or none for all elements");
  auto reduced = reduced_dims(args);
  for (size_t d = 0; d < reduced.size(); ++d)
    if (reduced[d] && args.in[0].shape[d].size == 0) refuse(args, Code::value, "there is no element to choose");
  auto out = types_reduce(args);
  out[0].dtype = DType::int64;
  return out;
}

// Only kept dims may be split: an index does not combine.
std::vector<Signature> signatures(const RuleArgs& args) {
  auto list = signatures_reduce(args, Sbp::partial());
  std::erase_if(list, [](auto& signature) { return signature.out[0].is_partial(); });
  return list;
}

// The first largest of n elements `stride` apart; the first NaN where there is one.
template <class T>
int64_t first_largest(const T* in, int64_t n, int64_t stride) {
  int64_t best = 0;
  for (int64_t i = 0; i < n; ++i) {
    T x = in[i * stride], y = in[best * stride];
    if (x != x) return i;
    if (x > y) best = i;
  }
  return best;
}

template <class T>
void run_typed(const Call& call) {
  auto& in = call.in[0];
  auto& axis = call.attr<std::vector<int64_t>>("axis");
  auto out = call.out[0].as<int64_t>();
  if (call.out[0].numel() == 0) return;
  if (axis.empty()) return void(*out = first_largest(in.as<const T>(), in.numel(), 1));
  int dim = int(axis[0] < 0 ? axis[0] + in.rank : axis[0]);
  int64_t outer = 1, n = in.dims[size_t(dim)], inner = 1;
  for (int d = 0; d < dim; ++d) outer *= in.dims[size_t(d)];
  for (int d = dim + 1; d < in.rank; ++d) inner *= in.dims[size_t(d)];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i)
      out[o * inner + i] = first_largest(in.as<const T>() + o * n * inner + i, n, inner);
}

void run(const Call& call) {
  visit_dtype(call.in[0].dtype, [&]<class T>(Tag<T>) { run_typed<T>(call); });
}

}  // namespace

extern constinit const OpDef argmax{
    .name = "argmax",
    .doc = "The index of the first largest element along one axis, or in all of `x` in row-major order.",
    .samples = samples,
    .inputs = "x",
    .attrs = reduce_attrs,
    .rule = {.types = types, .signatures = signatures},
    .cpu = run,
    .method = true,
};

}  // namespace sluice::ops
