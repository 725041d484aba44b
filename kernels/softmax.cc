// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/rule.h"
#include "kernels/simd.h"

namespace sluice {
namespace {

constexpr int64_t grain_elements = 1 << 15;

// Rows are contiguous: the axis is the last.
template <class T>
void run_rows_of(const T* x, T* y, int64_t rows, int64_t n, bool log, int threads) {
  parallel_for(threads, rows, std::max<int64_t>(grain_elements / n, 1), [&](int64_t begin, int64_t end) {
    vectorized([&] {
      for (int64_t r = begin; r < end; ++r) {
        const T* in = x + r * n;
        T* out = y + r * n;
        T most = row_max(in, n);
        T shift = log ? most + lane_log(row_exp_sum(in, n, most)) : T(1) / row_exp(in, n, most, out);
        if (log) {
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) out[i] = in[i] - shift;
        } else {
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) out[i] *= shift;
        }
      }
    });
  });
}

// The axis has `inner` elements after it: a group of `count` neighbouring columns at a time.
template <class T>
void run_columns(const T* x, T* y, int64_t n, int64_t inner, int64_t count, bool log) {
  constexpr int64_t width = 64;
  T most[width], sum[width];
  std::fill_n(most, count, -std::numeric_limits<T>::infinity());
  std::fill_n(sum, count, T(0));
  for (int64_t i = 0; i < n; ++i)
#pragma omp simd
    for (int64_t c = 0; c < count; ++c) most[c] = x[i * inner + c] > most[c] ? x[i * inner + c] : most[c];
  for (int64_t i = 0; i < n; ++i)
#pragma omp simd
    for (int64_t c = 0; c < count; ++c) sum[c] += lane_exp(x[i * inner + c] - most[c]);
#pragma omp simd
  for (int64_t c = 0; c < count; ++c) sum[c] = log ? most[c] + lane_log(sum[c]) : T(1) / sum[c];
  for (int64_t i = 0; i < n; ++i)
#pragma omp simd
    for (int64_t c = 0; c < count; ++c) {
      T v = x[i * inner + c];
      y[i * inner + c] = log ? v - sum[c] : lane_exp(v - most[c]) * sum[c];
    }
}

template <class T>
void run(const Call& call, int axis, bool log) {
  const View& in = call.in[0];
  int64_t outer = 1, n = in.dims[size_t(axis)], inner = 1;
  for (int d = 0; d < axis; ++d) outer *= in.dims[size_t(d)];
  for (int d = axis + 1; d < in.rank; ++d) inner *= in.dims[size_t(d)];
  if (outer * n * inner == 0) return;
  const T* x = in.as<T>();
  T* y = call.out[0].as<T>();
  if (inner == 1) return run_rows_of(x, y, outer, n, log, call.threads);
  constexpr int64_t width = 64;
  int64_t groups = (inner + width - 1) / width;
  parallel_for(call.threads, outer * groups, std::max<int64_t>(grain_elements / (n * width), 1),
               [&](int64_t begin, int64_t end) {
                 vectorized([&] {
                   for (int64_t job = begin; job < end; ++job) {
                     int64_t column = job % groups * width, offset = job / groups * n * inner + column;
                     run_columns(x + offset, y + offset, n, inner, std::min(width, inner - column), log);
                   }
                 });
               });
}

int axis_of(const RuleArgs& args) {
  return resolve_axis(args, attr<int64_t>(*args.attrs, "axis"), int(args.in[0].shape.size()));
}

}  // namespace

std::vector<LogicalType> softmax_types(const RuleArgs& args) {
  axis_of(args);
  if (!is_compute_float(args.in[0].dtype)) refuse(args, Code::type, "needs float32 or float64", "convert with astype");
  return {args.in[0]};
}

std::vector<Signature> softmax_signatures(const RuleArgs& args) {
  std::vector<Signature> list;
  for (int d = 0; d < int(args.in[0].shape.size()); ++d)
    if (d != axis_of(args)) list.push_back({{Sbp::split(d)}, {Sbp::split(d)}});
  return list;
}

void softmax_run(const Call& call, bool log) {
  auto axis = int(call.attr<int64_t>("axis"));
  if (axis < 0) axis += call.in[0].rank;
  call.in[0].dtype == DType::float32 ? run<float>(call, axis, log) : run<double>(call, axis, log);
}

}  // namespace sluice
