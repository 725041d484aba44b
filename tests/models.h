// SPDX-License-Identifier: Apache-2.0
// Small models as Jobs, built as the front end would build them; shared by the tests of this folder.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "actors/floor.h"
#include "kernels/build.h"

namespace sluice::testing {

struct MlpOptions {
  std::vector<int64_t> widths{12, 16, 16, 5};  // input, hidden..., classes
  int64_t batch = 24;
  DType dtype = DType::float64;
  double dropout = 0.1;
  std::string optimizer = "adam";
  Attrs optimizer_attrs{{"lr", 1e-2}};
};

inline Shape batched(int64_t batch, std::vector<int64_t> rest) {
  Shape shape{{batch, batch_sym, 1}};
  for (int64_t size : rest) shape.push_back({size});
  return shape;
}

// y = x @ w^T + b, weights as PyTorch stores them.
inline TensorId linear(Builder& build, const std::string& name, TensorId x, int64_t in, int64_t out, DType dtype) {
  TensorId w = build.variable(name + ".weight", {dtype, fixed_shape({out, in})}, true);
  TensorId b = build.variable(name + ".bias", {dtype, fixed_shape({out})}, true);
  return build.op("add", {build.op("matmul", {x, build.op("matrix_transpose", {w})}), b});
}

inline Job mlp(const OpTable& ops, const MlpOptions& options) {
  Job job;
  job.name = "mlp";
  job.seed = 7;
  job.graph.batch_bound = options.batch;
  Builder build(job.graph, ops);
  TensorId x = build.input("x", {options.dtype, batched(options.batch, {options.widths[0]})});
  TensorId y = build.input("y", {DType::int64, batched(options.batch, {})});
  TensorId h = x;
  for (size_t l = 0; l + 1 < options.widths.size(); ++l) {
    build.place = {"mlp.py", int(10 + l)};
    h = linear(build, fmt::format("layers.{}", l), h, options.widths[l], options.widths[l + 1], options.dtype);
    if (l + 2 == options.widths.size()) break;
    h = build.op("relu", {h});
    if (options.dropout > 0) h = build.op("dropout", {h}, {{"p", options.dropout}});
  }
  build.place = {"mlp.py", 20};
  job.loss = build.op("cross_entropy", {h, y});
  job.graph.outputs.push_back({"loss", job.loss});
  job.optimizer = options.optimizer;
  job.optimizer_attrs = options.optimizer_attrs;
  return job;
}

// Values by a generator, as any dtype.
template <class F>
HostArray array_of(DType dtype, std::vector<int64_t> dims, F value) {
  HostArray array{dtype, dims, {}};
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  array.data.resize(size_t(n * bytes_of(dtype)));
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* to = reinterpret_cast<T*>(array.data.data());
    for (int64_t i = 0; i < n; ++i) to[i] = T(value(i));
  });
  return array;
}

inline std::vector<double> values_of(const HostArray& array) {
  std::vector<double> values;
  visit_dtype(array.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* from = reinterpret_cast<const T*>(array.data.data());
    values.assign(from, from + array.data.size() / sizeof(T));
  });
  return values;
}

inline HostArray random_array(DType dtype, std::vector<int64_t> dims, uint64_t seed, double scale) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-scale, scale);
  return array_of(dtype, std::move(dims), [&](int64_t) { return uniform(random); });
}

inline std::map<std::string, HostArray> mlp_batch(const MlpOptions& options, int64_t step, int64_t rows) {
  std::mt19937_64 random{uint64_t(step) + 100};
  return {{"x", random_array(options.dtype, {rows, options.widths[0]}, uint64_t(step), 1.0)},
          {"y", array_of(DType::int64, {rows}, [&](int64_t) { return random() % uint64_t(options.widths.back()); })}};
}

}  // namespace sluice::testing
