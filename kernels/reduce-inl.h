// SPDX-License-Identifier: Apache-2.0
// The loops of a reduction by a functor on plain numbers:
//   struct Sum { template <class T> static T identity(); template <class T> T operator()(T a, T b) const; };
// Thread rule: pure but for the buffers. Results do not depend on the number of threads.
#pragma once
#include <algorithm>
#include <array>

#include "kernels/reduce.h"

namespace sluice {

// `A` is the type of the result and of the running values, `T` of the elements.
template <class F, class T, class A>
class Reducer {
 public:
  explicit Reducer(const Call& call)
      : loops_(reduce_loops(call.in[0], call.attr<std::vector<int64_t>>("axis")).loops),
        in_(call.in[0].as<const T>()),
        out_(call.out[0].as<A>()),
        elements_(call.in[0].numel()),
        threads_(elements_ >= (1 << 16) ? std::max(call.threads, 1) : 1) {
    std::fill_n(out_, call.out[0].numel(), F::template identity<A>());
  }

  void run() {
    if (elements_ == 0) return;
    if (threads_ > 1 && !loops_.empty() && !loops_[0].reduced) {
      int64_t piece = (loops_[0].size + threads_ - 1) / threads_;
#pragma omp parallel for num_threads(threads_) schedule(static)
      for (int64_t begin = 0; begin < loops_[0].size; begin += piece)
        for (int64_t i = begin; i < std::min(begin + piece, loops_[0].size); ++i)
          reduce(1, in_ + i * loops_[0].in_stride, out_ + i * loops_[0].out_stride);
      return;
    }
    if (threads_ > 1 && loops_.size() == 2) {
      int64_t columns = loops_[1].size;
#pragma omp parallel for num_threads(threads_) schedule(static)
      for (int64_t begin = 0; begin < columns; begin += chunk)
        chunk_of_columns(in_ + begin, out_ + begin, loops_[0].size, columns, std::min(chunk, columns - begin));
      return;
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
      int64_t rows = last ? 1 : loop.size, columns = loops_.back().size;
      for (int64_t begin = 0; begin < columns; begin += chunk)
        chunk_of_columns(in + begin, out + begin, rows, columns, std::min(chunk, columns - begin));
      return;
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

  static void chunk_of_columns(const T* in, A* out, int64_t rows, int64_t stride, int64_t n) {
    std::array<A, size_t(chunk)> part;
    A* p = part.data();
    for (int64_t first = 0; first < rows; first += block_rows) {
      std::fill_n(p, n, F::template identity<A>());
      for (int64_t r = first; r < std::min(first + block_rows, rows); ++r) {
        const T* row = in + r * stride;
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) p[j] = F{}(p[j], A(row[j]));
      }
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) out[j] = F{}(out[j], p[j]);
    }
  }

  std::vector<ReduceLoops::Loop> loops_;
  const T* in_;
  A* out_;
  int64_t elements_;
  int threads_;
};

}  // namespace sluice
