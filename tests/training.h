// SPDX-License-Identifier: Apache-2.0
// One training run of a small network under any placement, wherever it runs, and how two runs are compared.
// Thread rule: one client thread.
#pragma once
#include <gtest/gtest.h>

#include <cmath>

#include "launcher/session.h"
#include "tests/models.h"

namespace sluice::testing {

inline const Tables& tables() {
  static const Tables all = builtin_tables();
  return all;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> weights;
};

// Every few steps the batch is smaller, as the last of an epoch is.
inline int64_t rows_of(const MlpOptions& options, int64_t step) {
  return step % 5 == 4 ? options.batch / 2 - 1 : options.batch;
}

inline Trained train(const MlpOptions& options, const std::string& config, int64_t steps, const StartPlan& start = {}) {
  Session session(mlp(tables().ops, options), parse_config(config, "test.toml"), tables(), start);
  uint64_t seed = 1;
  for (auto& variable : session.job().graph.variables)
    session.set_variable(
        variable.name,
        random_array(options.dtype, sizes_of(session.job().graph.type(variable.value).shape), seed++, 0.4));
  Trained result;
  for (int64_t step = 0; step < steps; ++step) session.feed(mlp_batch(options, step, rows_of(options, step)));
  session.grant(steps);
  for (int64_t step = 0; step < steps; ++step) {
    auto done = session.wait_step(std::chrono::seconds(60));
    if (!done) throw Error(Code::failed, "a step took longer than a minute");
    EXPECT_EQ(done->step, step);
    EXPECT_EQ(done->batch, rows_of(options, step));
    result.losses.push_back(values_of(done->outputs.at("loss")).at(0));
  }
  session.drain();
  for (auto& name : session.variables()) result.weights[name] = values_of(session.variable(name));
  return result;
}

inline double norm(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return std::sqrt(sum);
}

inline void expect_equal(const Trained& got, const Trained& want, double loss_tolerance, double weight_tolerance) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], want.losses[i], loss_tolerance) << "step " << i;
  for (auto& [name, values] : want.weights) {
    ASSERT_TRUE(got.weights.count(name)) << name;
    std::vector<double> difference = got.weights.at(name);
    ASSERT_EQ(difference.size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) difference[i] -= values[i];
    EXPECT_LE(norm(difference), weight_tolerance * std::max(norm(values), 1e-3)) << name;
  }
}

struct Placement {
  std::string name, config;
};

inline std::vector<Placement> placements() {
  auto mesh = [](std::string axes, int micro) {
    return "[mesh]\naxes = { " + axes + " }\n[train]\nmicro_batch = " + std::to_string(micro) + "\n";
  };
  std::string servers =
      "[mesh]\naxes = { dp = 2 }\n[mesh.servers]\npool = \"ps\"\naxes = { shard = 2 }\n"
      "[[rule]]\nmatch = '.*'\nmesh = \"servers\"\n";
  return {{"one_device", ""},
          {"accumulate", mesh("dp = 1", 7)},
          {"dp4", mesh("dp = 4", 26)},
          {"tp4", mesh("tp = 4", 26)},
          {"pp4_m4", mesh("pp = 4", 7)},
          {"pp4_m8", mesh("pp = 4", 4)},
          {"dp2_tp2", mesh("dp = 2, tp = 2", 26)},
          {"dp2_tp2_m4", mesh("dp = 2, tp = 2", 7)},
          {"pp2_dp2", mesh("pp = 2, dp = 2", 7)},
          {"pp2_tp2", mesh("pp = 2, tp = 2", 7)},
          {"gpipe", mesh("pp = 2", 7) + "[pipeline]\nschedule = \"gpipe\"\n"},
          {"zero1", mesh("dp = 4", 26) + "[zero]\nstage = 1\naxes = [\"dp\"]\n"},
          {"servers", servers}};
}

inline MlpOptions options_of(DType dtype) {
  MlpOptions options;
  options.batch = 26;
  options.dtype = dtype;
  return options;
}

inline std::vector<Placement> spread() {
  auto all = placements();
  all.erase(all.begin(), all.begin() + 2);  // those on one device
  return all;
}

}  // namespace sluice::testing
