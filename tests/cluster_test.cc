// SPDX-License-Identifier: Apache-2.0
// Plans on a cluster of worker processes: the numbers are those of one process, what fails is named, and what ends
// leaves nothing.
#include <gtest/gtest.h>
#include <signal.h>

#include "launcher/cluster/testing.h"
#include "launcher/connector.h"
#include "tests/models.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using testing::MlpOptions;
using testing::TestCluster;

const Tables& tables() {
  static const Tables all = builtin_tables();
  return all;
}

TestCluster::Options on_hosts(std::vector<std::string> hosts) {
  return {.hosts = std::move(hosts), .serving = "Cluster.AWorkerServesUntilDismissed"};
}

constexpr const char* four = "[mesh]\naxes = { dp = 2, tp = 2 }\n[train]\nmicro_batch = 12\n";

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> weights;
};

void fill(Session& session, const MlpOptions& options) {
  uint64_t seed = 1;
  for (auto& variable : session.job().graph.variables) {
    auto dims = sizes_of(session.job().graph.type(variable.value).shape);
    session.set_variable(variable.name, testing::random_array(options.dtype, dims, seed++, 0.4));
  }
}

double step(Session& session, const MlpOptions& options, int64_t i, int64_t rows) {
  session.feed(testing::mlp_batch(options, i, rows));
  session.grant(1);
  auto result = session.wait_step(60s);
  if (!result) throw Error(Code::failed, "a step took longer than a minute");
  EXPECT_EQ(result->step, i);
  EXPECT_EQ(result->batch, rows);
  return testing::values_of(result->outputs.at("loss")).at(0);
}

Trained train(const std::string& config_text, const StartPlan& start, int64_t steps = 6) {
  MlpOptions options;
  Session session(testing::mlp(tables().ops, options), parse_config(config_text, "test.toml"), tables(), start);
  fill(session, options);
  Trained trained;
  for (int64_t i = 0; i < steps; ++i)
    trained.losses.push_back(step(session, options, i, i % 3 == 2 ? options.batch / 2 : options.batch));
  session.drain();
  for (auto& name : session.variables()) trained.weights[name] = testing::values_of(session.variable(name));
  return trained;
}

void expect_equal(const Trained& got, const Trained& want) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) EXPECT_NEAR(got.losses[i], want.losses[i], 1e-9) << i;
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (auto& [name, values] : want.weights) {
    auto& mine = got.weights.at(name);
    ASSERT_EQ(mine.size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(mine[i], values[i], 1e-9) << name;
  }
}

struct Client {
  explicit Client(const Credentials& to) : connector(to) {}
  Connector connector;
  StartPlan start() { return connector.start_with(tables(), default_config()); }
};

// Started by others as a worker, this test serves.
TEST(Cluster, AWorkerServesUntilDismissed) {
  if (testing::serve_if_told()) return;
  TestCluster cluster(on_hosts({"a"}));
  cluster.end_coordinator();
  auto& ended = cluster.worker(0).wait(testing::in_seconds(10));
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->exit_code(), 0) << ended->text();
}

TEST(Cluster, NumbersAreThoseOfOneProcess) {
  Trained want = train(four, {});
  for (auto hosts : std::vector<std::vector<std::string>>{{"a"}, {"a", "a"}, {"a", "a", "a", "a"}}) {
    TestCluster cluster(on_hosts(hosts));
    Client client(cluster.credentials());
    expect_equal(train(four, client.start()), want);
    EXPECT_TRUE(cluster.idle());
  }
}

}  // namespace
}  // namespace sluice
