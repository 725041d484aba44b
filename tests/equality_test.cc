// SPDX-License-Identifier: Apache-2.0
// Numbers mean the same under every plan: losses and final weights of a training run equal the single-device run.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/on_device.h"
#include "tests/split.h"
#include "tests/training.h"

namespace sluice {
namespace {

using testing::expect_equal;
using testing::MlpOptions;
using testing::options_of;
using testing::Placement;
using testing::tables;
using testing::train;
using testing::Trained;

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

TEST_P(Equality, AsynchronousDevices) {  // sim with its random delays, and GPUs where there are some
  auto options = options_of(DType::float64);
  static const Trained single = train(options, "", 6);
  for (auto& kind : test::async_devices())
    expect_equal(train(options, GetParam().config + "[device]\nkind = \"" + kind + "\"\n", 6), single, 1e-9, 1e-9);
}

TEST_P(Equality, SgdWithMomentum) {
  auto options = options_of(DType::float64);
  options.optimizer = "sgd";
  options.optimizer_attrs = {{"lr", 0.05}, {"momentum", 0.9}};
  static const Trained single = train(options, "", 10);
  expect_equal(train(options, GetParam().config, 10), single, 1e-9, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Placements, Equality, ::testing::ValuesIn(testing::placements()),
                         [](auto& info) { return info.param.name; });

// The same plan over several processes' floors, one client thread driving all.
struct Way {
  const char* name;
  int processes;
  testing::Crossing crossing;
};

class Split : public ::testing::TestWithParam<std::tuple<Placement, Way>> {
 protected:
  const Placement& placement() const { return std::get<0>(GetParam()); }
  StartPlan start() const {
    auto& way = std::get<1>(GetParam());
    return testing::split_over(tables(), way.processes, way.crossing);
  }
};

TEST_P(Split, Float64IsTheProof) {
  auto options = options_of(DType::float64);
  static const Trained single = train(options, "", 20);
  expect_equal(train(options, placement().config, 20, start()), single, 1e-9, 1e-9);
}

TEST_P(Split, AsynchronousDevices) {
  auto options = options_of(DType::float64);
  static const Trained single = train(options, "", 6);
  for (auto& kind : test::async_devices())
    expect_equal(train(options, placement().config + "[device]\nkind = \"" + kind + "\"\n", 6, start()), single, 1e-9,
                 1e-9);
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

std::vector<Way> ways() {
  using testing::over_hosts;
  return {{"copied_2", 2, testing::copying},    {"copied_4", 4, testing::copying}, {"shm_2", 2, over_hosts(1)},
          {"shm_4", 4, over_hosts(1)},          {"ucx_2", 2, over_hosts(0)},       {"ucx_4", 4, over_hosts(0)},
          {"mixed_2_hosts_4", 4, over_hosts(2)}};
}

INSTANTIATE_TEST_SUITE_P(Placements, Split,
                         ::testing::Combine(::testing::ValuesIn(testing::spread()), ::testing::ValuesIn(ways())),
                         [](auto& info) { return std::get<0>(info.param).name + "_" + std::get<1>(info.param).name; });

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
