// SPDX-License-Identifier: Apache-2.0
// What emerges from slots alone: 1F1B, jobs side by side, equal plans for equal input.
#include <gtest/gtest.h>

#include <algorithm>

#include "launcher/session.h"
#include "tests/models.h"

namespace sluice {
namespace {

using testing::MlpOptions;

const Tables& tables() {
  static const Tables all = builtin_tables();
  return all;
}

void fill(Session& session, const MlpOptions& options) {
  uint64_t seed = 1;
  for (auto& variable : session.job().graph.variables) {
    auto dims = sizes_of(session.job().graph.type(variable.value).shape);
    session.set_variable(variable.name, testing::random_array(options.dtype, dims, seed++, 0.4));
  }
}

double step(Session& session, const MlpOptions& options, int64_t i) {
  session.feed(testing::mlp_batch(options, i, options.batch));
  session.grant(1);
  return testing::values_of(session.wait_step(std::chrono::seconds(60)).value().outputs.at("loss")).at(0);
}

// A register between a forward and a backward chain of stage s holds what backward needs of the micro-batches alive.
class OneForwardOneBackward : public ::testing::TestWithParam<std::string> {};

TEST_P(OneForwardOneBackward, KeepsAtMostStagesLessStageAlive) {
  MlpOptions options;
  options.widths = {8, 8, 8, 8, 8, 8, 8, 4};
  options.batch = 32;
  std::string config = "[mesh]\naxes = { pp = 4 }\n[train]\nmicro_batch = 2\n" + GetParam();
  Session session(testing::mlp(tables().ops, options), parse_config(config, "test.toml"), tables());
  fill(session, options);
  for (int64_t i = 0; i < 5; ++i) step(session, options, i);
  session.drain();
  auto& plan = session.plan();
  auto stats = session.stats();
  std::vector<int64_t> alive(4, 0);
  for (auto& reg : plan.registers) {
    if (reg.producer < 0 || !reg.variable.empty()) continue;
    auto& producer = plan.actors[size_t(reg.producer)];
    int stage = plan.classes[size_t(reg.cls)].stage;
    bool stash = producer.kind == "compute" && producer.phase == Phase::forward &&
                 std::any_of(plan.actors.begin(), plan.actors.end(), [&](const PlanActor& a) {
                   return a.phase == Phase::backward && a.kind == "compute" &&
                          std::any_of(a.in.begin(), a.in.end(),
                                      [&](const Port& p) { return &plan.registers[size_t(p.reg)] == &reg; });
                 });
    if (stash) alive[size_t(stage)] = std::max(alive[size_t(stage)], stats.alive_max.at(reg.name));
  }
  for (int s = 0; s < 3; ++s) {  // the last stage's forward and backward are one chain
    EXPECT_GT(alive[size_t(s)], 0) << "stage " << s;
    EXPECT_LE(alive[size_t(s)], 4 - s) << "stage " << s;
  }
  EXPECT_GE(alive[0], 2) << "the stages overlap";
}
INSTANTIATE_TEST_SUITE_P(Devices, OneForwardOneBackward,
                         ::testing::Values("", "[device]\nkind = \"sim\"\n", "[debug]\ncoalesce = false\n"));

TEST(Jobs, TwoInOneProcessBehaveAsAlone) {
  MlpOptions a, b;
  b.batch = 18;
  b.optimizer = "sgd";
  std::string config_a = "[mesh]\naxes = { dp = 2, tp = 2 }\n",
              config_b = "[mesh]\naxes = { pp = 2 }\n[train]\nmicro_batch = 5\n";
  auto make = [&](const MlpOptions& options, const std::string& config) {
    auto session =
        std::make_unique<Session>(testing::mlp(tables().ops, options), parse_config(config, "t.toml"), tables());
    fill(*session, options);
    return session;
  };
  std::vector<double> alone, together;
  {
    auto first = make(a, config_a);
    for (int i = 0; i < 8; ++i) alone.push_back(step(*first, a, i));
  }
  {
    auto second = make(b, config_b);
    for (int i = 0; i < 8; ++i) alone.push_back(step(*second, b, i));
  }
  auto first = make(a, config_a), second = make(b, config_b);
  std::vector<double> of_first, of_second;
  for (int i = 0; i < 8; ++i) {  // both run at once: their steps are granted before either is waited for
    first->feed(testing::mlp_batch(a, i, a.batch));
    second->feed(testing::mlp_batch(b, i, b.batch));
    first->grant(1);
    second->grant(1);
    of_second.push_back(
        testing::values_of(second->wait_step(std::chrono::seconds(60)).value().outputs.at("loss")).at(0));
    of_first.push_back(testing::values_of(first->wait_step(std::chrono::seconds(60)).value().outputs.at("loss")).at(0));
  }
  together = of_first;
  together.insert(together.end(), of_second.begin(), of_second.end());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[i], alone[i], 1e-12) << i;
}

TEST(Plans, EqualInputGivesByteEqualPlans) {
  MlpOptions options;
  for (std::string config :
       {"", "[mesh]\naxes = { dp = 2, tp = 2 }\n", "[mesh]\naxes = { pp = 2, dp = 2 }\n[train]\nmicro_batch = 6\n"}) {
    auto plan = [&] {
      return make_plan(testing::mlp(tables().ops, options), parse_config(config, "t.toml"),
                       {tables().ops, tables().moves});
    };
    Plan first = plan();
    EXPECT_EQ(encode(first), encode(plan()));
    EXPECT_EQ(hash_of(first), hash_of(decode(encode(first))));
    EXPECT_TRUE(parse_plan(text_of(first)) == first);
  }
}

// A plan does not grow with data-parallel replicas: ranks of one role share a class.
TEST(Plans, DoNotGrowWithReplicas) {
  MlpOptions options;
  options.batch = 512;
  auto plan = [&](int dp) {
    return make_plan(testing::mlp(tables().ops, options),
                     parse_config(fmt::format("[mesh]\naxes = {{ dp = {} }}\n", dp), "t.toml"),
                     {tables().ops, tables().moves});
  };
  // Which collective is cheapest depends on the count, so the plans differ a little; their size does not follow it.
  EXPECT_LE(plan(256).actors.size(), plan(16).actors.size() + 4);
  EXPECT_LE(double(encode(plan(256)).size()), 1.3 * double(encode(plan(16)).size()));
}

}  // namespace
}  // namespace sluice
