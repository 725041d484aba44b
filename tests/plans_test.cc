// SPDX-License-Identifier: Apache-2.0
// Text goldens of whole plans, and what single passes promise.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "plan/verify.h"
#include "planner/pass.h"
#include "planner/planner.h"

namespace sluice {
namespace {

const OpTable& ops() {
  static const OpTable table(std::vector<const OpDef*>(builtin_ops().begin(), builtin_ops().end()));
  return table;
}

// Two linear layers with ReLU between, cross-entropy, SGD with momentum: small enough to read its plans.
Job two_layers(int64_t batch = 8) {
  Job job;
  job.name = "two_layers";
  job.graph.batch_bound = batch;
  Builder build(job.graph, ops());
  TensorId x = build.input("x", {DType::float32, {{batch, batch_sym, 1}, {6}}});
  TensorId y = build.input("y", {DType::int64, {{batch, batch_sym, 1}}});
  build.place = {"model.py", 3};
  TensorId w1 = build.variable("fc1.weight", {DType::float32, fixed_shape({16, 6})}, true);
  TensorId h = build.op("relu", {build.op("matmul", {x, build.op("matrix_transpose", {w1})})});
  build.place = {"model.py", 4};
  TensorId w2 = build.variable("fc2.weight", {DType::float32, fixed_shape({4, 16})}, true);
  job.loss = build.op("cross_entropy", {build.op("matmul", {h, build.op("matrix_transpose", {w2})}), y});
  job.graph.outputs.push_back({"loss", job.loss});
  job.optimizer = "sgd";
  job.optimizer_attrs = {{"lr", 0.1}, {"momentum", 0.9}};
  return job;
}

Plan plan_of(const Job& job, const std::string& config) {
  return make_plan(job, parse_config(config, "test.toml"), {ops(), builtin_moves()});
}

struct Golden {
  std::string name, config;
};

class Goldens : public ::testing::TestWithParam<Golden> {};

TEST_P(Goldens, PlanIsAsWritten) {
  std::string path = "planner/goldens/" + GetParam().name + ".plan";
  std::string text = text_of(plan_of(two_layers(), GetParam().config));
  if (std::getenv("SLUICE_UPDATE_GOLDENS")) std::ofstream(path) << text;
  std::ifstream file(path);
  std::string want{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, want) << "SLUICE_UPDATE_GOLDENS=1 writes it anew";
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Goldens,
    ::testing::Values(Golden{"single", ""}, Golden{"dp2", "[mesh]\naxes = { dp = 2 }\n"},
                      Golden{"tp2", "[mesh]\naxes = { tp = 2 }\n"},
                      Golden{"pp2", "[mesh]\naxes = { pp = 2 }\n[train]\nmicro_batch = 2\nclip_norm = 1.0\n"},
                      Golden{"servers",
                             "[mesh]\naxes = { dp = 2 }\n[mesh.servers]\npool = \"ps\"\naxes = { shard = 2 }\n"
                             "[[rule]]\nmatch = 'weight'\nmesh = \"servers\"\nstaleness = 1\n"}),
    [](auto& info) { return info.param.name; });

const PlanRegister& variable(const Plan& plan, const std::string& name) {
  return *std::find_if(plan.registers.begin(), plan.registers.end(), [&](auto& r) { return r.variable == name; });
}

TEST(Planner, EveryPassIsTimedAndShown) {
  std::vector<std::string> seen;
  make_plan(two_layers(), default_config(), {ops(), builtin_moves()},
            [&](std::string_view pass, double ms, const std::string& text) {
              seen.emplace_back(pass);
              EXPECT_GE(ms, 0);
              EXPECT_FALSE(text.empty());
            });
  EXPECT_EQ(seen.size(), builtin_passes().size());
  for (auto* pass : builtin_passes()) EXPECT_TRUE(std::count(seen.begin(), seen.end(), pass->name)) << pass->name;
  for (auto* pass : builtin_passes()) EXPECT_EQ(pass->doc.back(), '.') << pass->name;
}

TEST(Planner, OneDeviceIsOneChain) {
  Plan plan = plan_of(two_layers(), "");
  EXPECT_EQ(std::count_if(plan.actors.begin(), plan.actors.end(), [](auto& a) { return a.kind == "compute"; }), 1);
  EXPECT_EQ(std::count_if(plan.actors.begin(), plan.actors.end(), [](auto& a) { return a.kind == "move"; }), 0);
}

TEST(Planner, PinsHold) {
  Plan plan =
      plan_of(two_layers(), "[mesh]\naxes = { dp = 2, tp = 2 }\n[[rule]]\nmatch = 'fc1'\nsbp = { tp = \"S(0)\" }\n");
  auto& reg = variable(plan, "fc1.weight");
  EXPECT_EQ(text_of(plan.tensors[size_t(reg.tensors[0])].sbp), "(B,S(0))");
}

TEST(Planner, ZeroShardsTheStates) {
  Plan plan = plan_of(two_layers(), "[mesh]\naxes = { dp = 2 }\n[zero]\nstage = 1\naxes = [\"dp\"]\n");
  EXPECT_EQ(text_of(plan.tensors[size_t(variable(plan, "fc1.weight.momentum_buffer").tensors[0])].sbp), "(S(0))");
  EXPECT_EQ(text_of(plan.tensors[size_t(variable(plan, "fc1.weight").tensors[0])].sbp), "(B)");
}

TEST(Planner, StalenessIsASlotCount) {
  for (int k : {0, 1, 4}) {
    Plan plan = plan_of(
        two_layers(), fmt::format("[mesh]\naxes = {{ dp = 2 }}\n[mesh.servers]\npool = \"ps\"\naxes = {{ shard = 2 }}\n"
                                  "[[rule]]\nmatch = 'fc1'\nmesh = \"servers\"\nstaleness = {}\n",
                                  k));
    auto& reg = variable(plan, "fc1.weight");
    EXPECT_EQ(reg.slots, k + 1);
    EXPECT_EQ(plan.classes[size_t(reg.cls)].name, "servers");
    // The update runs on the servers.
    EXPECT_EQ(plan.actors[size_t(reg.producer)].cls, reg.cls);
  }
}

TEST(Planner, MemoryIsNearItsLowerBound) {
  for (std::string config : {"", "[mesh]\naxes = { dp = 2, tp = 2 }\n"})
    for (auto& cls : plan_of(two_layers(64), config).classes)
      EXPECT_LE(double(cls.arena_bytes), 1.02 * double(cls.arena_bytes_lower_bound)) << cls.name;
}

TEST(Planner, AHostileJobIsRefusedAndNothingStops) {
  auto refuse = [](auto change, const std::string& part) {
    Job job = two_layers();
    change(job.graph);
    try {
      plan_of(job, "");
      ADD_FAILURE() << "no error: " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  auto node = [](Graph& graph, const std::string& op) -> Node& {
    return *std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](auto& n) { return n.op == op; });
  };
  refuse([&](Graph& g) { node(g, "relu").op = "rlu"; }, "rlu");
  refuse([&](Graph& g) { node(g, "cross_entropy").attrs.clear(); }, "not complete");
  refuse([&](Graph& g) { node(g, "cross_entropy").attrs[0].value = int64_t{3}; }, "cross_entropy");
  refuse([&](Graph& g) { g.tensors[size_t(node(g, "relu").outputs[0])].type.dtype = DType::int64; },
         "not what the op makes");
}

void expect_refused(const std::string& config, const std::string& part, int line) {
  try {
    plan_of(two_layers(), config);
    FAIL() << "no error for\n" << config;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::usage);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_EQ(error.place().line, line) << error.what();
  }
}

TEST(Planner, WrongPinsNameTheirLine) {
  expect_refused("[mesh]\naxes = { tp = 2 }\n[[rule]]\nmatch = 'fc9'\nsbp = { tp = \"B\" }\n", "matches no variable",
                 3);
  expect_refused("[mesh]\naxes = { tp = 2 }\n[[rule]]\nmatch = 'fc1'\nsbp = { tp = \"S(5)\" }\n", "cannot be S(5)", 3);
  expect_refused("[mesh]\naxes = { pp = 2 }\n[train]\nmicro_batch = 2\n[[rule]]\nmatch = 'fc1'\nstage = 7\n",
                 "none of the 2 stages", 7);
}

}  // namespace
}  // namespace sluice
