// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/call_for_test.h"

namespace sluice {
namespace {

using testing::HasSubstr;

template <class T>
std::vector<T> normals(int64_t n, T scale = 1) {
  std::mt19937_64 random(5);
  std::normal_distribution<T> normal(0, scale);
  std::vector<T> values(static_cast<size_t>(n));
  for (auto& v : values) v = normal(random);
  return values;
}

std::vector<double> softmax_by_hand(const std::vector<double>& x, int64_t n, int64_t inner) {
  std::vector<double> y(x.size());
  for (int64_t outer = 0; outer < int64_t(x.size()) / (n * inner); ++outer)
    for (int64_t c = 0; c < inner; ++c) {
      auto at = [&](int64_t i) { return size_t((outer * n + i) * inner + c); };
      double most = -1e300, sum = 0;
      for (int64_t i = 0; i < n; ++i) most = std::max(most, x[at(i)]);
      for (int64_t i = 0; i < n; ++i) sum += std::exp(x[at(i)] - most);
      for (int64_t i = 0; i < n; ++i) y[at(i)] = std::exp(x[at(i)] - most) / sum;
    }
  return y;
}

TEST(Softmax, EqualsTheFormulaOnEveryAxis) {
  std::vector<int64_t> dims{3, 7, 70};
  auto x = normals<double>(3 * 7 * 70, 10);
  std::vector<float> narrow(x.begin(), x.end());
  for (int64_t axis : {0, 1, 2, -1}) {
    int64_t d = axis < 0 ? axis + 3 : axis, inner = d == 0 ? 490 : d == 1 ? 70 : 1;
    auto want = softmax_by_hand(x, dims[size_t(d)], inner);
    for (int threads : {1, 3}) {
      Runner run;
      run.threads = threads;
      run.attrs = {{"axis", axis}};
      auto y = run("softmax", {Value::of(dims, x)})[0].as<double>();
      auto log = run("log_softmax", {Value::of(dims, x)})[0].as<double>();
      auto y32 = run("softmax", {Value::of(dims, narrow)})[0].as<float>();
      auto log32 = run("log_softmax", {Value::of(dims, narrow)})[0].as<float>();
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(y[i], want[i], 1e-14) << axis;
        ASSERT_NEAR(log[i], std::log(want[i]), 1e-12);
        ASSERT_NEAR(y32[i], want[i], 2e-6);
        ASSERT_NEAR(log32[i], std::log(want[i]), 2e-5);
      }
    }
  }
}

TEST(Softmax, LargeLogitsDoNotOverflow) {
  Runner run;
  auto y = run("softmax", {Value::of<float>({1, 3}, {1e30f, 0, -INFINITY})})[0].as<float>();
  EXPECT_EQ(y, (std::vector<float>{1, 0, 0}));
  auto log = run("log_softmax", {Value::of<float>({1, 2}, {1000, 0})})[0].as<float>();
  EXPECT_EQ(log, (std::vector<float>{0, -1000}));
}

TEST(Softmax, EmptyTensorsAndBadAxes) {
  Runner run;
  EXPECT_TRUE(run("softmax", {Value::of<float>({0, 3}, {})})[0].bytes.empty());
  run.attrs = {{"axis", int64_t(0)}};
  EXPECT_TRUE(run("softmax", {Value::of<float>({0, 3}, {})})[0].bytes.empty());
  run.attrs = {{"axis", int64_t(2)}};
  EXPECT_THROW(run("softmax", {Value::of<float>({2, 3}, std::vector<float>(6))}), Error);
}

template <class T>
double loss_by_hand(const std::vector<T>& x, const std::vector<int64_t>& labels, int64_t classes, size_t row) {
  double most = -1e300, sum = 0;
  auto at = [&](int64_t c) { return double(x[row * size_t(classes) + size_t(c)]); };
  for (int64_t c = 0; c < classes; ++c) most = std::max(most, at(c));
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(at(c) - most);
  return std::log(sum) + most - at(labels[row]);
}

TEST(CrossEntropy, EqualsTheFormulaInEveryReduction) {
  int64_t rows = 150, classes = 11;
  auto x = normals<float>(rows * classes, 3);
  std::vector<int64_t> labels;
  for (int64_t r = 0; r < rows; ++r) labels.push_back(r * 7 % classes);
  double sum = 0;
  for (size_t r = 0; r < size_t(rows); ++r) sum += loss_by_hand(x, labels, classes, r);
  Runner run;
  std::vector<Value> in{Value::of({rows, classes}, x), Value::of({rows}, labels)};
  EXPECT_NEAR(run("cross_entropy", in)[0].as<float>()[0], sum / double(rows), 1e-5);
  run.attrs = {{"reduction", std::string("sum")}};
  float one = run("cross_entropy", in)[0].as<float>()[0];
  EXPECT_NEAR(one, sum, 1e-3);
  run.threads = 3;
  EXPECT_EQ(run("cross_entropy", in)[0].as<float>()[0], one);  // the order of the sum is the same
  run.attrs = {{"reduction", std::string("none")}};
  auto each = run("cross_entropy", in)[0].as<float>();
  for (size_t r = 0; r < size_t(rows); ++r) EXPECT_NEAR(each[r], loss_by_hand(x, labels, classes, r), 1e-5);
  run.attrs = {{"reduction", std::string("max")}};
  EXPECT_THROW(run("cross_entropy", in), Error);
}

// Two micro-batches of unequal size: their means add up to the whole batch's.
TEST(CrossEntropy, TheMeanIsOverTheWholeBatch) {
  int64_t rows = 7, classes = 3;
  auto x = normals<double>(rows * classes);
  std::vector<int32_t> labels{0, 1, 2, 0, 1, 2, 0};
  Runner run;
  double whole = run("cross_entropy", {Value::of({rows, classes}, x), Value::of({rows}, labels)})[0].as<double>()[0];
  Dim batch{8, batch_sym, 1};  // the bound is larger than the batch
  double sum = 0;
  for (auto [begin, size] : {Range{0, 4}, Range{4, 3}, Range{7, 0}}) {
    Value logits = Value::part({DType::float64, {batch, {classes}}}, {size, classes}, {begin, 0});
    Value part = Value::part({DType::int32, {batch}}, {size}, {begin}), loss = Value::empty({DType::float64, {}});
    std::copy_n(x.data() + begin * classes, size * classes, logits.view().as<double>());
    std::copy_n(labels.data() + begin, size, part.view().as<int32_t>());
    run.window.valid[batch_sym] = {begin, size};
    run.window.whole[batch_sym] = rows;
    run.run("cross_entropy", {&logits, &part}, {&loss});
    sum += loss.as<double>()[0];
  }
  EXPECT_NEAR(sum, whole, 1e-15);
}

TEST(CrossEntropy, ABadLabelIsNamedWithItsRowOfTheBatch) {
  Runner run;
  for (auto* op : {"cross_entropy", "count_correct"})
    for (int64_t bad : {-1, 3}) {
      Value logits = Value::part({DType::float32, fixed_shape({10, 3})}, {2, 3}, {4, 0});
      Value labels = Value::part({DType::int64, fixed_shape({10})}, {2}, {4}), out = Value::empty({DType::float32, {}});
      std::fill_n(logits.view().as<float>(), 6, 0.f);
      labels.view().as<int64_t>()[0] = 2;
      labels.view().as<int64_t>()[1] = bad;
      try {
        run.run(op, {&logits, &labels}, {&out});
        FAIL() << op << " took label " << bad;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::index);
        EXPECT_THAT(error.what(), HasSubstr(op + std::string(": label ") + std::to_string(bad) + " of row 5"));
      }
    }
}

TEST(CrossEntropy, RefusesWhatDoesNotFit) {
  Runner run;
  auto logits = Value::of<float>({2, 3}, std::vector<float>(6));
  EXPECT_THROW(run("cross_entropy", {logits, Value::of<int64_t>({3}, {0, 1, 2})}), Error);
  EXPECT_THROW(run("cross_entropy", {logits, Value::of<float>({2}, {0, 1})}), Error);
  EXPECT_THROW(run("cross_entropy", {Value::of<float>({2}, {0, 1}), Value::of<int64_t>({2}, {0, 1})}), Error);
}

TEST(CountCorrect, TakesTheFirstOfEqualsAndNoNaN) {
  Runner run;
  auto logits = Value::of<float>({5, 3}, {1, 2, 3, 3, 3, 1, 3, 3, 1, NAN, 1, 0, 5, 1, 0});
  auto labels = Value::of<int32_t>({5}, {2, 0, 1, 1, 0});
  EXPECT_EQ(run("count_correct", {logits, labels})[0].as<float>()[0], 3);  // rows 0, 1 and 4
  EXPECT_EQ(run("count_correct", {Value::of<float>({0, 3}, {}), Value::of<int32_t>({0}, {})})[0].as<float>()[0], 0);
}

}  // namespace
}  // namespace sluice
