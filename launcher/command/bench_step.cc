// SPDX-License-Identifier: Apache-2.0
#include "launcher/command/bench_step.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "kernels/build.h"
#include "launcher/session.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t batch = 256;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void pin(int threads) {
  cpu_set_t all, some;
  CPU_ZERO(&some);
  if (sched_getaffinity(0, sizeof all, &all) != 0) throw Error(Code::failed, "the cores cannot be listed");
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < threads; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &some);
  if (CPU_COUNT(&some) < threads || sched_setaffinity(0, sizeof some, &some) != 0)
    throw Error(Code::usage, "--threads " + std::to_string(threads) + " is more than the cores there are");
}

// Uniform in [-bound, bound), by a name: the same weights in every run.
HostArray uniform(const std::vector<int64_t>& dims, double bound, std::string_view name) {
  HostArray array{DType::float32, dims, {}};
  int64_t n = numel(fixed_shape(dims));
  array.data.resize(size_t(n) * sizeof(float));
  RandomKey key{0, name_hash(name), 0};
  auto* values = reinterpret_cast<float*>(array.data.data());
  for (int64_t i = 0; i < n; ++i) values[i] = float((key.uniform(uint64_t(i)) * 2 - 1) * bound);
  return array;
}

struct Model {
  Job job;
  std::map<std::string, HostArray> weights, data;
};

TensorId linear(Builder& build, Model& model, TensorId x, std::string name, int64_t in, int64_t out) {
  double bound = 1 / std::sqrt(double(in));
  auto parameter = [&](const std::string& part, std::vector<int64_t> dims) {
    model.weights[name + part] = uniform(dims, bound, name + part);
    return build.variable(name + part, {DType::float32, fixed_shape(dims)}, true);
  };
  TensorId weight = parameter(".weight", {out, in}), bias = parameter(".bias", {out});
  TensorId product = build.op("matmul", {x, build.op("matrix_transpose", {weight})});
  return build.op("add", {product, bias});
}

// 784-1024-1024-10, ReLU, Adam.
Model mlp(const OpTable& ops, bool with_loss) {
  Model model;
  model.job.name = "mlp";
  Graph& graph = model.job.graph;
  graph.batch_bound = batch;
  Builder build(graph, ops);
  Dim rows{batch, batch_sym, 1};
  TensorId x = build.input("x", {DType::float32, {rows, {784}}}), y = build.input("y", {DType::int64, {rows}});
  TensorId h = build.op("relu", {linear(build, model, x, "fc1", 784, 1024)});
  h = build.op("relu", {linear(build, model, h, "fc2", 1024, 1024)});
  TensorId loss = build.op("cross_entropy", {linear(build, model, h, "fc3", 1024, 10), y});
  model.job.loss = loss;
  if (with_loss) graph.outputs.push_back({"loss", loss});
  model.job.optimizer = "adam";
  model.job.optimizer_attrs = {{"lr", 1e-3}};

  HostArray labels{DType::int64, {batch}, std::vector<std::byte>(size_t(batch) * sizeof(int64_t))};
  for (int64_t i = 0; i < batch; ++i) {
    int64_t label = int64_t(RandomKey{0, name_hash("y"), 0}.bits(uint64_t(i)) % 10);
    std::memcpy(labels.data.data() + size_t(i) * sizeof label, &label, sizeof label);
  }
  model.data = {{"x", uniform({batch, 784}, std::sqrt(3.0), "x")}, {"y", std::move(labels)}};
  return model;
}

double scalar_of(const StepResult& result) {
  auto& array = result.outputs.at("loss");
  float value = 0;
  check(array.dtype == DType::float32 && array.data.size() == sizeof value, "the loss is a float32 scalar");
  std::memcpy(&value, array.data.data(), sizeof value);
  return double(value);
}

}  // namespace

StepTimes bench_step(const BenchStep& bench, const StartPlan& run_on) {
  if (bench.workload != "mlp")
    throw Error(Code::usage, "the workload '" + bench.workload + "' is not supported yet", {}, "there is: mlp");
  if (bench.procs == 1) pin(bench.threads);
  auto start = Clock::now();
  Tables tables = builtin_tables();
  Config config = bench.procs == 1
                      ? default_config()
                      : parse_config("[mesh]\naxes = { dp = " + std::to_string(bench.procs) + " }\n", "bench");
  config.device_threads.value = bench.threads;
  Model model = mlp(tables.ops, bench.loss);
  Session session(model.job, config, tables, run_on);
  for (auto& [name, value] : model.weights) session.set_variable(name, value);

  StepTimes times;
  auto step = [&] {
    session.feed(model.data);
    session.grant(1);
    auto result = session.wait_step(std::chrono::minutes(1));
    if (!result) throw Error(Code::failed, "a step took more than a minute");
    if (bench.loss) times.loss = scalar_of(*result);
  };
  step();
  times.first_ms = ms_since(start);
  for (int i = 0; i < 3; ++i) step();
  std::vector<double> all;
  for (auto begin = Clock::now(); ms_since(begin) < bench.seconds * 1e3 || all.size() < 5;) {
    auto one = Clock::now();
    step();
    all.push_back(ms_since(one));
  }
  std::sort(all.begin(), all.end());
  size_t half = all.size() / 2;
  times.median_ms = all.size() % 2 ? all[half] : (all[half - 1] + all[half]) / 2;
  times.min_ms = all.front(), times.max_ms = all.back(), times.steps = int(all.size());
  return times;
}

std::string step_json(const BenchStep& bench, const StepTimes& times) {
  auto rounded = [](double value, double digits) { return std::round(value * digits) / digits; };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  nlohmann::ordered_json json{{"framework", "sluice"},
                              {"workload", bench.workload},
                              {"procs", bench.procs},
                              {"threads", bench.threads},
                              {"ms", rounded(times.median_ms, 1e3)},
                              {"min", rounded(times.min_ms, 1e3)},
                              {"max", rounded(times.max_ms, 1e3)},
                              {"steps", times.steps},
                              {"first_s", rounded(times.first_ms / 1e3, 1e2)},
                              {"first_ms", rounded(times.first_ms, 1e1)},
                              {"peak_mib", usage.ru_maxrss / 1024}};
  if (bench.loss) json["loss"] = rounded(times.loss, 1e4);
  return json.dump();
}

}  // namespace sluice
