// SPDX-License-Identifier: Apache-2.0
// Numbers mean the same under every plan: losses and final weights of a training run equal the single-device run.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "launcher/session.h"
#include "tests/models.h"
#include "tests/split.h"

namespace sluice {
namespace {

using testing::MlpOptions;

const Tables& tables() {
  static const Tables all = builtin_tables();
  return all;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> weights;
};

// Every few steps the batch is smaller, as the last of an epoch is.
int64_t rows_of(const MlpOptions& options, int64_t step) {
  return step % 5 == 4 ? options.batch / 2 - 1 : options.batch;
}

Trained train(const MlpOptions& options, const std::string& config, int64_t steps, const StartPlan& start = {}) {
  Session session(testing::mlp(tables().ops, options), parse_config(config, "test.toml"), tables(), start);
  uint64_t seed = 1;
  for (auto& variable : session.job().graph.variables)
    session.set_variable(
        variable.name,
        testing::random_array(options.dtype, sizes_of(session.job().graph.type(variable.value).shape), seed++, 0.4));
  Trained result;
  for (int64_t step = 0; step < steps; ++step) session.feed(testing::mlp_batch(options, step, rows_of(options, step)));
  session.grant(steps);
  for (int64_t step = 0; step < steps; ++step) {
    auto done = session.wait_step(std::chrono::seconds(60));
    if (!done) throw Error(Code::failed, "a step took longer than a minute");
    EXPECT_EQ(done->step, step);
    EXPECT_EQ(done->batch, rows_of(options, step));
    result.losses.push_back(testing::values_of(done->outputs.at("loss")).at(0));
  }
  session.drain();
  for (auto& name : session.variables()) result.weights[name] = testing::values_of(session.variable(name));
  return result;
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return std::sqrt(sum);
}

void expect_equal(const Trained& got, const Trained& want, double loss_tolerance, double weight_tolerance) {
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

std::vector<Placement> placements() {
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

MlpOptions options_of(DType dtype) {
  MlpOptions options;
  options.batch = 26;
  options.dtype = dtype;
  return options;
}

class Equality : public ::testing::TestWithParam<Placement> {};

TEST_P(Equality, Float64IsTheProof) {
  auto options = options_of(DType::float64);
  static const Trained single = train(options, "", 50);
  expect_equal(train(options, GetParam().config, 50), single, 1e-9, 1e-9);
}

TEST_P(Equality, Float32WithinRounding) {
  auto options = options_of(DType::float32);
  static const Trained single = train(options, "", 50), once = train(options, "", 1);
  expect_equal(train(options, GetParam().config, 1), once, 1e-5, 1e-5);
  expect_equal(train(options, GetParam().config, 50), single, 1e-4, 1e-4);
}

TEST_P(Equality, ClippedByGlobalNorm) {
  auto options = options_of(DType::float64);
  std::string clip = "clip_norm = 0.05\n";
  auto with = [&](const std::string& config) {
    size_t at = config.find("[train]\n");
    return at == config.npos ? config + "[train]\n" + clip : std::string(config).insert(at + 8, clip);
  };
  static const Trained single = train(options, with(""), 10);
  expect_equal(train(options, with(GetParam().config), 10), single, 1e-9, 1e-9);
}

TEST_P(Equality, OneActorAnOpAndNoMemoryReuse) {
  auto options = options_of(DType::float64);
  static const Trained single = train(options, "", 6);
  expect_equal(train(options, GetParam().config + "[debug]\ncoalesce = false\n", 6), single, 1e-9, 1e-9);
  expect_equal(train(options, GetParam().config + "[memory]\nreuse = false\n", 6), single, 1e-9, 1e-9);
}

TEST_P(Equality, SimulatedDevicesWithRandomDelays) {
  auto options = options_of(DType::float64);
  static const Trained single = train(options, "", 6);
  expect_equal(train(options, GetParam().config + "[device]\nkind = \"sim\"\n", 6), single, 1e-9, 1e-9);
}

TEST_P(Equality, SgdWithMomentum) {
  auto options = options_of(DType::float64);
  options.optimizer = "sgd";
  options.optimizer_attrs = {{"lr", 0.05}, {"momentum", 0.9}};
  static const Trained single = train(options, "", 10);
  expect_equal(train(options, GetParam().config, 10), single, 1e-9, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Placements, Equality, ::testing::ValuesIn(placements()),
                         [](auto& info) { return info.param.name; });

// The same plan over several processes' floors, one client thread driving all: what crosses is packed and copied.
class Split : public ::testing::TestWithParam<std::tuple<Placement, int>> {
 protected:
  const Placement& placement() const { return std::get<0>(GetParam()); }
  StartPlan start() const { return testing::split_over(tables(), std::get<1>(GetParam()), testing::copying); }
};

TEST_P(Split, Float64IsTheProof) {
  auto options = options_of(DType::float64);
  static const Trained single = train(options, "", 20);
  expect_equal(train(options, placement().config, 20, start()), single, 1e-9, 1e-9);
}

TEST_P(Split, SimulatedDevicesWithRandomDelays) {
  auto options = options_of(DType::float64);
  static const Trained single = train(options, "", 6);
  expect_equal(train(options, placement().config + "[device]\nkind = \"sim\"\n", 6, start()), single, 1e-9, 1e-9);
}

TEST_P(Split, OneActorAnOp) {
  auto options = options_of(DType::float64);
  static const Trained single = train(options, "", 6);
  expect_equal(train(options, placement().config + "[debug]\ncoalesce = false\n", 6, start()), single, 1e-9, 1e-9);
}

// Values set between steps reach readers in other processes, which hold copies of the old ones.
TEST_P(Split, VariablesAreSetBetweenSteps) {
  auto options = options_of(DType::float64);
  auto losses = [&](const std::string& config, const StartPlan& start) {
    Session session(testing::mlp(tables().ops, options), parse_config(config, "test.toml"), tables(), start);
    std::vector<double> losses;
    for (uint64_t round = 0; round < 3; ++round) {
      uint64_t seed = 10 * round;
      for (auto& variable : session.job().graph.variables)
        session.set_variable(variable.name,
                             testing::random_array(
                                 options.dtype, sizes_of(session.job().graph.type(variable.value).shape), seed++, 0.4));
      for (int64_t step = 0; step < 2; ++step) {
        session.feed(testing::mlp_batch(options, step, options.batch));
        session.grant(1);
        losses.push_back(testing::values_of(session.wait_step(std::chrono::seconds(60))->outputs.at("loss")).at(0));
      }
      session.drain();
    }
    return losses;
  };
  static const std::vector<double> single = losses("", {});
  auto got = losses(placement().config, start());
  for (size_t i = 0; i < single.size(); ++i) EXPECT_NEAR(got[i], single[i], 1e-9) << i;
}

std::vector<Placement> spread() {
  auto all = placements();
  all.erase(all.begin(), all.begin() + 2);  // those on one device
  return all;
}

INSTANTIATE_TEST_SUITE_P(Placements, Split, ::testing::Combine(::testing::ValuesIn(spread()), ::testing::Values(2, 4)),
                         [](auto& info) {
                           return std::get<0>(info.param).name + "_on_" + std::to_string(std::get<1>(info.param));
                         });

// The reference itself is real training: it learns.
TEST(Equality, TheSingleRunLearns) {
  auto options = options_of(DType::float64);
  options.dropout = 0;
  MlpOptions fixed = options;
  Session session(testing::mlp(tables().ops, fixed), default_config(), tables());
  uint64_t seed = 1;
  for (auto& variable : session.job().graph.variables)
    session.set_variable(
        variable.name,
        testing::random_array(fixed.dtype, sizes_of(session.job().graph.type(variable.value).shape), seed++, 0.4));
  std::vector<double> losses;
  for (int i = 0; i < 100; ++i) {
    session.feed(testing::mlp_batch(fixed, 0, fixed.batch));
    session.grant(1);
    losses.push_back(testing::values_of(session.wait_step(std::chrono::seconds(60))->outputs.at("loss")).at(0));
  }
  EXPECT_LT(losses.back(), 0.2 * losses.front());
}

// Bounded staleness is a slot count: workers read a version that is k updates old, and training goes on.
class Staleness : public ::testing::TestWithParam<int> {};

TEST_P(Staleness, Trains) {
  auto options = options_of(DType::float64);
  options.dropout = 0;
  std::string config =
      "[mesh]\naxes = { dp = 2 }\n[mesh.servers]\npool = \"ps\"\naxes = { shard = 2 }\n"
      "[[rule]]\nmatch = '.*'\nmesh = \"servers\"\nstaleness = " +
      std::to_string(GetParam()) + "\n";
  Session session(testing::mlp(tables().ops, options), parse_config(config, "test.toml"), tables());
  uint64_t seed = 1;
  for (auto& variable : session.job().graph.variables)
    session.set_variable(
        variable.name,
        testing::random_array(options.dtype, sizes_of(session.job().graph.type(variable.value).shape), seed++, 0.4));
  constexpr int steps = 120;
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) session.feed(testing::mlp_batch(options, 0, options.batch));
  session.grant(steps);
  for (int i = 0; i < steps; ++i)
    losses.push_back(testing::values_of(session.wait_step(std::chrono::seconds(60))->outputs.at("loss")).at(0));
  // Version 0 is read by the first 1 + k steps.
  for (int i = 1; i <= GetParam(); ++i) EXPECT_NEAR(losses[size_t(i)], losses[0], 1e-12);
  EXPECT_GT(std::abs(losses[size_t(GetParam()) + 1] - losses[0]), 1e-9);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}
INSTANTIATE_TEST_SUITE_P(Slots, Staleness, ::testing::Values(1, 4));

}  // namespace
}  // namespace sluice
