// SPDX-License-Identifier: Apache-2.0
// A coordinator, workers and clients as threads of one program: the thread sanitizer sees every queue between them.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>

#include "launcher/connector.h"
#include "launcher/process.h"
#include "tests/models.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using testing::MlpOptions;

class Threads {
 public:
  explicit Threads(int workers) {
    CoordinatorOptions options;
    options.secret = secret_;
    coordinator_ = std::make_unique<Coordinator>(options);
    for (int i = 0; i < workers; ++i)
      threads_.emplace_back([this, stop = stop_.get()] {
        WorkerOptions worker{.to = credentials(), .host = "a"};
        try {
          EXPECT_EQ(run_worker(worker, stop), 0);
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      });
    EXPECT_TRUE(coordinator_->wait_for_workers(workers, 60s));
  }
  ~Threads() {
    stop_workers();
    coordinator_.reset();
  }
  void stop_workers() {
    uint64_t one = 1;
    [[maybe_unused]] auto written = write(stop_.get(), &one, sizeof one);
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }
  Credentials credentials() const { return {{"127.0.0.1", coordinator_->port()}, secret_}; }
  Coordinator& coordinator() { return *coordinator_; }

 private:
  Secret secret_ = make_secret();
  Handle stop_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<std::thread> threads_;
};

std::vector<double> losses(const Tables& tables, const StartPlan& start, int steps) {
  MlpOptions options{.widths = {6, 8, 4}, .batch = 8};
  Session session(testing::mlp(tables.ops, options), parse_config("[mesh]\naxes = { dp = 2 }\n", "test.toml"), tables,
                  start);
  uint64_t seed = 1;
  for (auto& variable : session.job().graph.variables) {
    auto dims = sizes_of(session.job().graph.type(variable.value).shape);
    session.set_variable(variable.name, testing::random_array(options.dtype, dims, seed++, 0.4));
  }
  std::vector<double> all;
  for (int i = 0; i < steps; ++i) session.feed(testing::mlp_batch(options, i, options.batch));
  session.grant(steps);
  for (int i = 0; i < steps; ++i)
    all.push_back(testing::values_of(session.wait_step(120s).value().outputs.at("loss")).at(0));
  session.drain();
  for (auto& name : session.variables()) session.variable(name);
  return all;
}

TEST(Threads, RunsOfTwoClientsAtOnce) {
  Tables tables = builtin_tables();
  auto want = losses(tables, {}, 4);
  Threads cluster(2);
  Connector one(cluster.credentials()), two(cluster.credentials());
  std::thread other(
      [&] { EXPECT_EQ(losses(tables, two.start_with(tables, default_config()), 4).size(), want.size()); });
  for (int i = 0; i < 3; ++i) {
    auto got = losses(tables, one.start_with(tables, default_config()), 4);
    for (size_t s = 0; s < want.size(); ++s) EXPECT_NEAR(got[s], want[s], 1e-9);
  }
  other.join();
}

TEST(Threads, WorkersThatLeaveEndTheRunByName) {
  Tables tables = builtin_tables();
  Threads cluster(2);
  Connector connector(cluster.credentials());
  Session session(testing::mlp(tables.ops, {}), parse_config("[mesh]\naxes = { dp = 2 }\n", "test.toml"), tables,
                  connector.start_with(tables, default_config()));
  cluster.stop_workers();
  try {
    session.grant(1);
    session.wait_step(60s);
    ADD_FAILURE() << "nothing failed";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("has left"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(cluster.coordinator().workers().empty());
}

TEST(Threads, CancelledRunsSayWhy) {
  Tables tables = builtin_tables();
  Threads cluster(1);
  Connector connector(cluster.credentials());
  Session session(testing::mlp(tables.ops, {}), default_config(), tables,
                  connector.start_with(tables, default_config()));
  cluster.coordinator().cancel_runs(Error(Code::cancelled, "somebody said so"));
  try {
    session.wait_step(60s);
    ADD_FAILURE() << "nothing failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "somebody said so");
    EXPECT_EQ(error.code(), Code::cancelled);
  }
}

}  // namespace
}  // namespace sluice
