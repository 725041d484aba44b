// SPDX-License-Identifier: Apache-2.0
// The op matmul: leading dims, layouts and empty parts. The products themselves: gemm_test.cc.
#include <gtest/gtest.h>

#include "kernels/call_for_test.h"

namespace sluice {
namespace {

Value counting(std::vector<int64_t> dims, double first) {
  int64_t n = 1;
  for (auto d : dims) n *= d;
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(first + double(i % 7));
  return Value::of(std::move(dims), values);
}

// The same matrices with the last two dims swapped in memory.
Value as_col(const Value& value) {
  Value col = value;
  col.col = true;
  auto from = value.as<double>();
  auto* to = reinterpret_cast<double*>(col.bytes.data());
  int64_t rows = value.dims[value.dims.size() - 2], columns = value.dims.back(), size = rows * columns;
  for (int64_t i = 0; i < int64_t(from.size()); ++i)
    to[i / size * size + i % columns * rows + i % size / columns] = from[size_t(i)];
  return col;
}

// NumPy's definition, index by index.
std::vector<double> by_hand(const Value& a, const Value& b, const Value& out) {
  auto x = a.as<double>(), y = b.as<double>();
  std::vector<double> z(size_t(out.type.shape.empty() ? 1 : numel(out.type.shape)));
  size_t rank = out.dims.size();
  int64_t m = out.dims[rank - 2], n = out.dims[rank - 1], k = a.dims.back();
  auto matrix = [&](const Value& in, int64_t index) {
    int64_t at = 0, step = 1;
    for (int64_t d = int64_t(rank) - 3; d >= 0; --d) {
      int64_t i = index % out.dims[size_t(d)], mine = d - int64_t(rank - in.dims.size());
      index /= out.dims[size_t(d)];
      if (mine < 0) continue;
      at += in.dims[size_t(mine)] == 1 ? 0 : i * step;
      step *= in.dims[size_t(mine)];
    }
    return at;
  };
  for (int64_t i = 0; i < int64_t(z.size()); ++i) {
    int64_t batch = i / (m * n), row = i / n % m, column = i % n;
    const double* left = x.data() + (matrix(a, batch) * m + row) * k;
    const double* right = y.data() + matrix(b, batch) * k * n + column;
    for (int64_t l = 0; l < k; ++l) z[size_t(i)] += left[l] * right[l * n];
  }
  return z;
}

TEST(Matmul, LeadingDimsAndLayouts) {
  using Dims = std::vector<int64_t>;
  for (auto& [a_dims, b_dims] : std::vector<std::pair<Dims, Dims>>{{{3, 4}, {4, 5}},
                                                                   {{0, 4}, {4, 5}},
                                                                   {{3, 0}, {0, 5}},
                                                                   {{3, 4}, {4, 0}},
                                                                   {{2, 3, 4}, {4, 5}},
                                                                   {{2, 3, 4}, {2, 4, 5}},
                                                                   {{3, 4}, {6, 4, 5}},
                                                                   {{2, 1, 3, 4}, {3, 4, 5}},
                                                                   {{2, 1, 3, 4}, {1, 3, 4, 2}},
                                                                   {{2, 0, 3, 4}, {4, 5}},
                                                                   {{1, 1, 3, 4}, {2, 5, 4, 6}}}) {
    Value a = counting(a_dims, -3), b = counting(b_dims, -2);
    for (int threads : {1, 2, 3}) {
      Runner run;
      run.threads = threads;
      Value out = run("matmul", {a, b})[0];
      auto want = by_hand(a, b, out);
      EXPECT_EQ(out.as<double>(), want);
      EXPECT_EQ(run("matmul", {as_col(a), b})[0].as<double>(), want);
      EXPECT_EQ(run("matmul", {a, as_col(b)})[0].as<double>(), want);
      EXPECT_EQ(run("matmul", {as_col(a), as_col(b)})[0].as<double>(), want);
    }
  }
}

TEST(Matmul, CostsTwoOperationsAProduct) {
  Runner run;
  auto& op = run.table.at("matmul");
  std::vector<LogicalType> in{{DType::float32, fixed_shape({7, 2, 3})}, {DType::float32, fixed_shape({3, 5})}};
  auto out = infer_types(op, in, {});
  EXPECT_EQ(cost_of(op, in, out, {}).flops, 2 * 7 * 2 * 3 * 5);
}

}  // namespace
}  // namespace sluice
