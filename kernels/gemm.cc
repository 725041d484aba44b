// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include <cblas.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "kernels/parallel.h"

namespace sluice {
namespace {

constexpr double piece_flops_min = 1e6;  // about 10 us: below it a hand-off costs more than it gains
constexpr int64_t piece_unit = 16;       // rows or columns: a multiple of every micro-kernel's width

int blas_int(int64_t value) {
  if (value > INT_MAX)
    throw Error(Code::value, fmt::format("matmul: a local dim of {} is more than the BLAS library takes", value), {},
                "split the tensor over more devices");
  return int(value);
}

// A block of the product: `ld` are the row lengths of the stored matrices.
template <class T>
void block(const Gemm& s, const T* a, int64_t lda, const T* b, int64_t ldb, T* out, int64_t ldo) {
  auto ta = s.a_col ? CblasTrans : CblasNoTrans, tb = s.b_col ? CblasTrans : CblasNoTrans;
  int m = blas_int(s.m), n = blas_int(s.n), k = blas_int(s.k);
  int la = blas_int(lda), lb = blas_int(ldb), lo = blas_int(ldo);
  if constexpr (std::is_same_v<T, float>) {
    cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, la, b, lb, 0, out, lo);
  } else if constexpr (std::is_same_v<T, double>) {
    cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, la, b, lb, 0, out, lo);
  } else {
    int64_t a_row = s.a_col ? 1 : lda, a_step = s.a_col ? lda : 1, b_row = s.b_col ? 1 : ldb,
            b_step = s.b_col ? ldb : 1;
    using Sum = std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, uint32_t>;  // wraps
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        Sum sum = 0;
        for (int64_t l = 0; l < s.k; ++l) sum += Sum(a[i * a_row + l * a_step]) * Sum(b[l * b_row + j * b_step]);
        out[i * ldo + j] = T(sum);
      }
  }
}

template <class T>
void product(const Gemm& s, const T* a, const T* b, T* out, int threads) {
  // The BLAS library asks OpenMP how many threads the caller may use: here always one.
  if (omp_get_max_threads() != 1) omp_set_num_threads(1);
  int64_t lda = s.a_col ? s.m : s.k, ldb = s.b_col ? s.k : s.n;
  double flops = 2.0 * double(s.m) * double(s.n) * double(s.k);
  int teams = int(std::clamp(flops / piece_flops_min, 1.0, double(std::max(threads, 1))));
  if (s.m >= s.n) {
    parallel_for(
        teams, s.m, piece_unit,
        [&](int64_t begin, int64_t end) {
          Gemm part = s;
          part.m = end - begin;
          block(part, a + (s.a_col ? begin : begin * lda), lda, b, ldb, out + begin * s.n, s.n);
        },
        piece_unit);
  } else {
    parallel_for(
        teams, s.n, piece_unit,
        [&](int64_t begin, int64_t end) {
          Gemm part = s;
          part.n = end - begin;
          block(part, a, lda, b + (s.b_col ? begin * ldb : begin), ldb, out + begin, s.n);
        },
        piece_unit);
  }
}

}  // namespace

void gemm(DType dtype, const Gemm& shape, const void* a, const void* b, void* out, int threads) {
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) {
    std::memset(out, 0, size_t(shape.m * shape.n * bytes_of(dtype)));
    return;
  }
  bool known = visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>)
      product(shape, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out), threads);
  });
  check(known && dtype != DType::bool_, "a matrix product of a dtype that its rule refuses");
}

}  // namespace sluice
