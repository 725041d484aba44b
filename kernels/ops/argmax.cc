// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/reduce.h"
#ifdef __CUDACC__
#include "kernels/block_cuda.h"
#endif

namespace sluice::ops {

#ifdef __CUDACC__
namespace {

// A value and its place; no place: none yet. Of equal ones the first, and the first NaN before all.
template <class T>
struct Ranked {
  T value;
  int64_t index;
};
struct FirstLargest {
  template <class T>
  constexpr Ranked<T> operator()(Ranked<T> a, Ranked<T> b) const {
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (!a_nan && a.value != b.value) return a.value > b.value ? a : b;
    return a.index < b.index ? a : b;
  }
};

// A row of threads has an output: n elements `inner` apart.
template <class T>
__global__ void first_largest_of(const T* in, int64_t* out, int64_t outputs, int64_t n, int64_t inner) {
  for (int64_t first = int64_t(blockIdx.x) * block_rows; first < outputs; first += int64_t(gridDim.x) * block_rows) {
    int64_t output = first + threadIdx.y, end = output < outputs ? n : 0;
    const T* x = in + output / inner * n * inner + output % inner;
    Ranked<T> best{T(0), -1};
    for (int64_t i = threadIdx.x; i < end; i += row_threads) best = FirstLargest{}(best, Ranked<T>{x[i * inner], i});
    best = combine_row<FirstLargest>(best);
    if (output < outputs && threadIdx.x == 0) out[output] = best.index;
  }
}

}  // namespace

void argmax_cuda(const Call& call) {
  const View& in = call.in[0];
  auto& axis = call.attr<std::vector<int64_t>>("axis");
  int64_t outputs = call.out[0].numel(), n = in.numel(), inner = 1;
  if (outputs == 0) return;
  if (!axis.empty()) {
    int dim = int(axis[0] < 0 ? axis[0] + in.rank : axis[0]);
    n = in.dims[size_t(dim)];
    for (int d = dim + 1; d < in.rank; ++d) inner *= in.dims[size_t(d)];
  }
  CudaQueue& queue = queue_of(call);
  visit_dtype(in.dtype, [&]<class T>(Tag<T>) {
    if constexpr (!std::is_same_v<T, bool>)
      launch(queue, blocks_for(queue, outputs, block_rows), block_of_rows(), first_largest_of<T>, in.as<const T>(),
             call.out[0].as<int64_t>(), outputs, n, inner);
  });
}
#else
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

[[gnu::weak]] DeviceKernel argmax_cuda;

extern constinit const OpDef argmax{
    .name = "argmax",
    .doc = "The index of the first largest element along one axis, or in all of `x` in row-major order.",
    .samples = samples,
    .inputs = "x",
    .attrs = reduce_attrs,
    .rule = {.types = types, .signatures = signatures},
    .cpu = run,
    .cuda = argmax_cuda,
    .method = true,
};
#endif

}  // namespace sluice::ops
