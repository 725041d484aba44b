// SPDX-License-Identifier: Apache-2.0
// The loops of a reduction by a functor on plain numbers:
//   struct Sum { template <class T> static constexpr T identity(); template <class T> constexpr T operator()(T, T)
//   const; };
// Thread rule: pure but for the buffers. Results do not depend on the number of threads.
#pragma once
#include <algorithm>
#include <array>

#include "kernels/reduce.h"
#include "kernels/tile-inl.h"
#ifdef __CUDACC__
#include "kernels/reduce_cuda.h"
#else
#include "kernels/parallel.h"
#include "kernels/simd.h"
#endif

namespace sluice {

// What sum and mean reduce by. Integers wrap.
struct ReduceSum {
  template <class T>
  static constexpr T identity() {
    return T(0);
  }
  template <class T>
  constexpr T operator()(T a, T b) const {
    return wrapped(a, b, [](auto x, auto y) { return x + y; });
  }
};

#ifndef __CUDACC__

// `A` is the type of the result and of the running values, `T` of the elements.
template <class F, class T, class A>
class Reducer {
 public:
  explicit Reducer(const Call& call)
      : loops_(reduce_loops(call.in[0], call.attr<std::vector<int64_t>>("axis")).loops),
        in_(call.in[0].as<const T>()),
        out_(call.out[0].as<A>()),
        elements_(call.in[0].numel()),
        threads_(call.threads) {
    std::fill_n(out_, call.out[0].numel(), F::template identity<A>());
  }

  void run() {
    if (elements_ == 0) return;
    constexpr int64_t elements_min = 1 << 15;  // a thread's share
    if (!loops_.empty() && !loops_[0].reduced) {
      auto& loop = loops_[0];
      int64_t grain = std::max<int64_t>(elements_min / (elements_ / loop.size), 1);
      return parallel_for(threads_, loop.size, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) reduce(1, in_ + i * loop.in_stride, out_ + i * loop.out_stride);
      });
    }
    if (loops_.size() == 2) {
      int64_t rows = loops_[0].size, columns = loops_[1].size;
      return parallel_for(
          threads_, columns, std::max<int64_t>(elements_min / rows, 1),
          [&](int64_t begin, int64_t end) { columns_of(in_ + begin, out_ + begin, rows, columns, end - begin); }, 64);
    }
    reduce(0, in_, out_);
  }

 private:
  static constexpr int64_t chunk = 512, block_rows = 64, lanes = 16, block_elements = 1024;

  void reduce(size_t level, const T* in, A* out) const {
    if (level == loops_.size()) return void(*out = F{}(*out, A(*in)));
    auto& loop = loops_[level];
    bool last = level + 1 == loops_.size();
    if (last && loop.reduced) return void(*out = F{}(*out, row(in, loop.size)));
    if (last || (loop.reduced && level + 2 == loops_.size())) {
      int64_t columns = loops_.back().size;
      return columns_of(in, out, last ? 1 : loop.size, columns, columns);
    }
    for (int64_t i = 0; i < loop.size; ++i) reduce(level + 1, in + i * loop.in_stride, out + i * loop.out_stride);
  }

  // Halves until a block is small: the error of a sum grows with the logarithm of its length.
  static A row(const T* in, int64_t n) {
    if (n <= block_elements) return block_row(in, n);
    int64_t half = n / 2 / block_elements * block_elements;
    if (half == 0) half = block_elements;
    return F{}(row(in, half), row(in + half, n - half));
  }

  static A block_row(const T* in, int64_t n) {
    std::array<A, size_t(lanes)> part;
    part.fill(F::template identity<A>());
    A* p = part.data();
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
#pragma omp simd
      for (int64_t j = 0; j < lanes; ++j) p[j] = F{}(p[j], A(in[i + j]));
    }
    for (int64_t j = 0; i < n; ++i, ++j) p[j] = F{}(p[j], A(in[i]));
    for (int64_t width = lanes / 2; width > 0; width /= 2)
      for (int64_t j = 0; j < width; ++j) p[j] = F{}(p[j], p[j + width]);
    return p[0];
  }

  static void columns_of(const T* in, A* out, int64_t rows, int64_t stride, int64_t n) {
    for (int64_t begin = 0; begin < n; begin += chunk)
      chunk_of_columns(in + begin, out + begin, rows, stride, std::min(chunk, n - begin));
  }

  static void chunk_of_columns(const T* in, A* out, int64_t rows, int64_t stride, int64_t n) {
    std::array<A, size_t(chunk)> part;
    sum_rows(in, part.data(), rows, stride, n);
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) out[j] = F{}(out[j], part[size_t(j)]);
  }

  // Halves the rows as row() halves elements.
  static void sum_rows(const T* in, A* part, int64_t rows, int64_t stride, int64_t n) {
    if (rows > block_rows) {
      int64_t half = std::max<int64_t>(rows / 2 / block_rows * block_rows, block_rows);
      sum_rows(in, part, half, stride, n);
      return chunk_of_columns(in + half * stride, part, rows - half, stride, n);
    }
    std::fill_n(part, n, F::template identity<A>());
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = in + r * stride;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) part[j] = F{}(part[j], A(row[j]));
    }
  }

  std::vector<ReduceLoops::Loop> loops_;
  const T* in_;
  A* out_;
  int64_t elements_;
  int threads_;
};

#endif

}  // namespace sluice
