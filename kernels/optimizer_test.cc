// SPDX-License-Identifier: Apache-2.0
// Optimizers against PyTorch's published formulas, written plainly in double.
#include "kernels/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/call_for_test.h"

namespace sluice {
namespace {

std::vector<double> normals(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<size_t>(n));
  for (auto& v : values) v = normal(random);
  return values;
}

struct Adam {
  double lr = 0.01, beta1 = 0.8, beta2 = 0.95, eps = 1e-6, weight_decay = 0.1;
  bool decoupled = false;
  Attrs attrs() const {
    return {{"lr", lr}, {"beta1", beta1}, {"beta2", beta2}, {"eps", eps}, {"weight_decay", weight_decay}};
  }
  void step(std::vector<double>& p, std::vector<double> g, std::vector<double>& m, std::vector<double>& v,
            int t) const {
    for (size_t i = 0; i < p.size(); ++i) {
      if (decoupled)
        p[i] *= 1 - lr * weight_decay;
      else
        g[i] += weight_decay * p[i];
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      double denominator = std::sqrt(v[i]) / std::sqrt(1 - std::pow(beta2, t)) + eps;
      p[i] -= lr / (1 - std::pow(beta1, t)) * m[i] / denominator;
    }
  }
};

template <class T>
std::vector<double> wide(const Value& value) {
  auto narrow = value.as<T>();
  return {narrow.begin(), narrow.end()};
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// Several steps in place and out of place, on one thread and several.
template <class T>
void expect_adam(const Adam& adam, bool in_place, int threads, double tolerance) {
  int64_t n = 100'003;
  auto p = normals(n, 1), m = std::vector<double>(size_t(n)), v = m;
  auto narrow = [&](const std::vector<double>& x) { return Value::of<T>({n}, std::vector<T>(x.begin(), x.end())); };
  std::vector<Value> now{narrow(p), narrow(m), narrow(v), Value::of<float>({}, {0})}, other = now;
  Runner run;
  run.attrs = adam.attrs();
  run.threads = threads;
  for (int t = 1; t <= 4; ++t) {
    auto g = normals(n, uint64_t(10 + t));
    adam.step(p, g, m, v, t);
    Value grad = narrow(g);
    auto& next = in_place ? now : other;
    run.run(adam.decoupled ? "adamw" : "adam", {&now[0], &grad, &now[1], &now[2], &now[3]},
            {&next[0], &next[1], &next[2], &next[3]});
    if (!in_place) std::swap(now, other);
    EXPECT_EQ(now[3].as<float>()[0], float(t));
  }
  EXPECT_LE(distance(wide<T>(now[0]), p), tolerance);
  EXPECT_LE(distance(wide<T>(now[1]), m), tolerance);
  EXPECT_LE(distance(wide<T>(now[2]), v), tolerance);
}

TEST(Adam, EqualsTheFormula) {
  for (bool in_place : {true, false})
    for (int threads : {1, 3})
      for (bool decoupled : {false, true}) {
        Adam adam{.decoupled = decoupled};
        expect_adam<double>(adam, in_place, threads, 1e-13);
        expect_adam<float>(adam, in_place, threads, 2e-5);
      }
}

struct Sgd {
  double lr = 0.1, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  Attrs attrs() const {
    return {{"lr", lr},
            {"momentum", momentum},
            {"dampening", dampening},
            {"weight_decay", weight_decay},
            {"nesterov", nesterov}};
  }
  void step(std::vector<double>& p, std::vector<double> g, std::vector<double>& b, bool first) const {
    for (size_t i = 0; i < p.size(); ++i) {
      g[i] += weight_decay * p[i];
      double d = g[i];
      if (momentum != 0) {
        b[i] = first ? g[i] : momentum * b[i] + (1 - dampening) * g[i];
        d = nesterov ? g[i] + momentum * b[i] : b[i];
      }
      p[i] -= lr * d;
    }
  }
};

void expect_sgd(const Sgd& sgd, bool in_place) {
  int64_t n = 1003;
  auto p = normals(n, 1), b = std::vector<double>(size_t(n));
  std::vector<Value> now{Value::of({n}, p), Value::of({n}, b)}, other = now;
  Runner run;
  run.attrs = sgd.attrs();
  for (int t = 0; t < 4; ++t) {
    auto g = normals(n, uint64_t(10 + t));
    sgd.step(p, g, b, t == 0);
    Value grad = Value::of({n}, g);
    auto& next = in_place ? now : other;
    run.step = t;
    run.run("sgd", {&now[0], &grad, &now[1]}, {&next[0], &next[1]});
    if (!in_place) std::swap(now, other);
  }
  for (size_t i = 0; i < size_t(n); ++i) {
    ASSERT_NEAR(now[0].as<double>()[i], p[i], 1e-13);
    ASSERT_NEAR(now[1].as<double>()[i], b[i], 1e-13);
  }
}

TEST(Sgd, EqualsTheFormula) {
  for (bool in_place : {true, false}) {
    expect_sgd({}, in_place);
    expect_sgd({.weight_decay = 0.1}, in_place);
    expect_sgd({.momentum = 0.9}, in_place);
    expect_sgd({.momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1}, in_place);
    expect_sgd({.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}, in_place);
  }
}

TEST(Sgd, NesterovNeedsAMomentumAndNoDampening) {
  Runner run;
  Value x = Value::of<float>({2}, {1, 2});
  run.attrs = Sgd{.nesterov = true}.attrs();
  EXPECT_THROW(run("sgd", {x, x, x}), Error);
  run.attrs = Sgd{.momentum = 0.9, .dampening = 0.1, .nesterov = true}.attrs();
  EXPECT_THROW(run("sgd", {x, x, x}), Error);
}

TEST(Optimizers, EmptyShardsAdvanceTheStep) {
  Runner run;
  Value none = Value::of<float>({0, 3}, {});
  for (auto* op : {"adam", "adamw"}) {
    auto out = run(op, {none, none, none, none, Value::of<float>({}, {4})});
    EXPECT_EQ(out[3].as<float>()[0], 5);
  }
  EXPECT_TRUE(run("sgd", {none, none, none})[0].bytes.empty());
}

TEST(Optimizers, RefuseOtherTypes) {
  Runner run;
  Value a = Value::of<float>({2}, {1, 2}), b = Value::of<float>({3}, {1, 2, 3}), c = Value::of<double>({2}, {1, 2});
  Value whole = Value::of<int32_t>({2}, {1, 2}), step = Value::of<float>({}, {0});
  EXPECT_THROW(run("sgd", {a, b, a}), Error);
  EXPECT_THROW(run("sgd", {a, c, a}), Error);
  EXPECT_THROW(run("sgd", {whole, whole, whole}), Error);
  EXPECT_THROW(run("adam", {a, a, a, a, a}), Error);
  EXPECT_THROW(run("adam", {c, c, c, c, Value::of<double>({}, {0})}), Error);
}

TEST(Optimizers, APartialGradientIsNotLegal) {
  Runner run;
  LogicalType type{DType::float32, fixed_shape({4, 5})}, scalar{DType::float32, {}};
  std::vector<LogicalType> in{type, type, type, type, scalar};
  auto& op = run.table.at("adam");
  auto list = signatures_of(op, in, complete_attrs(op, {}));
  ASSERT_EQ(list.size(), 3u);
  for (int d : {0, 1}) {
    Sbp s = Sbp::split(d), b = Sbp::broadcast();
    EXPECT_EQ(list[size_t(d)], (Signature{{s, s, s, s, b}, {s, s, s, b}}));
  }
}

TEST(Accumulate, StartsOverWithEachStep) {
  Runner run;
  for (int threads : {1, 4})
    for (int64_t n : {0, 1, 7, 300000}) {
      run.threads = threads;
      Value sum = Value::empty({DType::float64, fixed_shape({n})});
      for (int step = 0; step < 2; ++step)
        for (int micro = 0; micro < 3; ++micro) {
          run.micro_batch = micro;
          Value x = Value::of<double>({n}, std::vector<double>(size_t(n), 1 + 10 * micro + 100 * step));
          run.run("accumulate", {&x}, {&sum});
          double want = (micro + 1) * (1 + 100 * step) + 10 * (micro * (micro + 1) / 2);
          EXPECT_EQ(sum.as<double>(), std::vector<double>(size_t(n), want));
        }
    }
}

TEST(ClipScale, IsTorchs) {
  Runner run;
  run.attrs = {{"max_norm", 2.0}};
  EXPECT_DOUBLE_EQ(run("clip_scale", {Value::of<double>({}, {25})})[0].as<double>()[0], 2 / (5 + 1e-6));
  EXPECT_EQ(run("clip_scale", {Value::of<float>({}, {1})})[0].as<float>()[0], 1);
  EXPECT_EQ(run("clip_scale", {Value::of<float>({}, {0})})[0].as<float>()[0], 1);
  EXPECT_TRUE(std::isnan(run("clip_scale", {Value::of<float>({}, {NAN})})[0].as<float>()[0]));
  run.attrs = {{"max_norm", 0.0}};
  EXPECT_THROW(run("clip_scale", {Value::of<float>({}, {1})}), Error);
}

}  // namespace
}  // namespace sluice
