// SPDX-License-Identifier: Apache-2.0
// Plans on a cluster of worker processes: the numbers are those of one process, what fails is named, and what ends
// leaves nothing.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <fstream>
#include <thread>

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
  for (auto hosts : std::vector<std::vector<std::string>>{{"a"}, {"a", "a"}, {"a", "b", "a", "b"}}) {
    TestCluster cluster(on_hosts(hosts));
    Client client(cluster.credentials());
    expect_equal(train(four, client.start()), want);
    EXPECT_TRUE(cluster.idle());
  }
}

TEST(Cluster, RanksLieSideBySideAsEvenlyAsTheyCan) {
  TestCluster cluster(on_hosts({"b", "a", "b"}));
  Client client(cluster.credentials());
  Session session(testing::mlp(tables().ops, {}), parse_config(four, "test.toml"), tables(), client.start());
  std::map<std::string, int> ranks;
  for (auto& worker : cluster.coordinator().workers()) ranks[worker.host] += worker.ranks;
  EXPECT_EQ(ranks, (std::map<std::string, int>{{"a", 2}, {"b", 2}}));
}

TEST(Cluster, WhatIsLargerThanAMessageTravelsInPieces) {
  MlpOptions options{.widths = {20'000, 16, 5}};  // a batch of 3.8 MB, a weight of 2.6 MB
  auto run = [&](const StartPlan& start) {
    Session session(testing::mlp(tables().ops, options), parse_config(four, "test.toml"), tables(), start);
    fill(session, options);
    double loss = step(session, options, 0, options.batch);
    return std::pair(loss, session.variable("layers.0.weight").data);
  };
  TestCluster cluster(on_hosts({"a", "a"}));
  Client client(cluster.credentials());
  auto [loss, weight] = run(client.start());
  auto [loss_here, weight_here] = run({});
  EXPECT_NEAR(loss, loss_here, 1e-9);
  ASSERT_EQ(weight.size(), weight_here.size());
  for (size_t i = 0; i < weight.size(); i += sizeof(double)) {
    double a = 0, b = 0;
    std::memcpy(&a, &weight[i], sizeof a), std::memcpy(&b, &weight_here[i], sizeof b);
    ASSERT_NEAR(a, b, 1e-9) << i;
  }
}

TEST(Cluster, SeveralSessionsOfOneClientAndOfTwoRunAtOnce) {
  Trained want = train(four, {});
  TestCluster cluster(on_hosts({"a", "a"}));
  Client one(cluster.credentials()), two(cluster.credentials());
  std::vector<Trained> got(3);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i)
    threads.emplace_back([&, i] { got[i] = train(four, (i == 2 ? two : one).start()); });
  for (auto& thread : threads) thread.join();
  for (auto& trained : got) expect_equal(trained, want);
  EXPECT_EQ(one.connector.cluster(), one.connector.cluster());
  EXPECT_TRUE(cluster.idle());
}

TEST(Cluster, ABadBatchIsRefusedAndTheRunGoesOn) {
  MlpOptions options;
  TestCluster cluster(on_hosts({"a", "a"}));
  Client client(cluster.credentials());
  Session session(testing::mlp(tables().ops, options), parse_config(four, "test.toml"), tables(), client.start());
  fill(session, options);
  auto batch = testing::mlp_batch(options, 0, options.batch);
  batch.erase("y");
  EXPECT_THROW(session.feed(batch), Error);
  batch = testing::mlp_batch(options, 0, options.batch + 1);
  EXPECT_THROW(session.feed(batch), Error);
  batch["x"].dtype = DType::int64;
  EXPECT_THROW(session.feed(batch), Error);
  step(session, options, 0, options.batch);
  session.drain();
  EXPECT_EQ(session.steps_done(), 1);
  EXPECT_GT(session.stats().firings, 0);
  EXPECT_THROW(session.set_variable("layers.0.bias", {DType::float64, {1}, std::vector<std::byte>(8)}), Error);
}

// ---- what fails is named

Error failure_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::failed, "nothing failed");
}

// Steps without end, until something fails.
Error failure_of_steps(Session& session, const MlpOptions& options) {
  return failure_of([&] {
    for (int64_t i = 0; i < 1'000'000; ++i) step(session, options, i, options.batch);
  });
}

TEST(Cluster, AFailedOpNamesItselfItsRankAndTheUsersLine) {
  MlpOptions options;
  TestCluster cluster(on_hosts({"a", "a"}));
  Client client(cluster.credentials());
  {
    Session session(testing::mlp(tables().ops, options), parse_config("[mesh]\naxes = { dp = 2 }\n", "test.toml"),
                    tables(), client.start());
    fill(session, options);
    step(session, options, 0, options.batch);
    auto batch = testing::mlp_batch(options, 1, options.batch);
    int64_t wrong = 99;  // a class that is none, in the last row: that of rank 1
    std::memcpy(batch["y"].data.data() + batch["y"].data.size() - sizeof wrong, &wrong, sizeof wrong);
    session.feed(batch);
    session.grant(1);
    Error error = failure_of([&] { session.wait_step(60s); });
    EXPECT_NE(error.message().find("cross_entropy"), std::string::npos) << error.what();
    EXPECT_NE(error.message().find("rank 1"), std::string::npos) << error.what();
    EXPECT_NE(error.message().find("worker 1, host a"), std::string::npos) << error.what();
    EXPECT_EQ(error.place().text(), "mlp.py:20");
    EXPECT_EQ(failure_of([&] { session.drain(); }).message(), error.message());
    EXPECT_EQ(failure_of([&] { session.grant(1); }).message(), error.message());
  }
  EXPECT_TRUE(cluster.idle());
  expect_equal(train(four, client.start(), 2), train(four, {}, 2));
}

TEST(Cluster, AKilledWorkerIsNamed) {
  MlpOptions options;
  TestCluster cluster(on_hosts({"a", "b", "a"}));
  Client client(cluster.credentials());
  Session session(testing::mlp(tables().ops, options), parse_config(four, "test.toml"), tables(), client.start());
  fill(session, options);
  step(session, options, 0, options.batch);
  // The launcher that started it says how it ended.
  pid_t pid = cluster.worker(0).pid();
  std::thread kill([&] {
    cluster.worker(0).send(SIGKILL);
    auto& ended = cluster.worker(0).wait(testing::in_seconds(20));
    if (ended) cluster.coordinator().worker_ended("a", pid, ended->text());
  });
  Error error = failure_of([&] {
    for (int64_t i = 1; i < 1'000'000; ++i) step(session, options, i, options.batch);
  });
  kill.join();
  EXPECT_NE(error.message().find("pid " + std::to_string(pid)), std::string::npos) << error.what();
  EXPECT_NE(error.message().find("was killed by signal 9"), std::string::npos) << error.what();
}

TEST(Cluster, ALostWorkerIsNamedWhereNobodySaysHowItEnded) {
  MlpOptions options;
  TestCluster cluster(on_hosts({"a", "a"}));
  Client client(cluster.credentials());
  Session session(testing::mlp(tables().ops, options), parse_config(four, "test.toml"), tables(), client.start());
  fill(session, options);
  cluster.worker(1).send(SIGKILL);
  Error error = failure_of_steps(session, options);
  EXPECT_NE(error.message().find("pid " + std::to_string(cluster.worker(1).pid())), std::string::npos) << error.what();
  EXPECT_NE(error.message().find("is gone"), std::string::npos) << error.what();
  EXPECT_TRUE(cluster.idle());
}

TEST(Cluster, AWorkerKilledAtAnyTimeIsNamedOrMissed) {
  MlpOptions options;
  auto with = on_hosts({"a", "b"});
  with.devices = 2;
  for (int ms : {0, 2, 5, 10, 15, 20, 30, 50}) {
    TestCluster cluster(with);
    Client client(cluster.credentials());
    std::string pid = "pid " + std::to_string(cluster.worker(1).pid());
    std::thread kill([&] {
      usleep(useconds_t(ms) * 1000);
      cluster.worker(1).send(SIGKILL);
    });
    Error error = failure_of([&] {
      Session session(testing::mlp(tables().ops, options), parse_config(four, "test.toml"), tables(), client.start());
      fill(session, options);
      for (int64_t i = 0; i < 1'000'000; ++i) step(session, options, i, options.batch);
    });
    kill.join();
    bool named = error.message().find(pid) != std::string::npos;
    bool missed = error.message().find("needs 4 devices") != std::string::npos;
    EXPECT_TRUE(named || missed) << ms << " ms: " << error.what();
    EXPECT_TRUE(cluster.idle());
  }
}

TEST(Cluster, AStoppedWorkerIsNamed) {
  MlpOptions options;
  auto with = on_hosts({"a", "a"});
  with.silence_ms = 1500;
  TestCluster cluster(with);
  Client client(cluster.credentials());
  Session session(testing::mlp(tables().ops, options), parse_config(four, "test.toml"), tables(), client.start());
  fill(session, options);
  step(session, options, 0, options.batch);
  cluster.worker(1).send(SIGSTOP);
  Error error = failure_of([&] {
    for (int64_t i = 1; i < 1'000'000; ++i) step(session, options, i, options.batch);
  });
  EXPECT_NE(error.message().find("pid " + std::to_string(cluster.worker(1).pid())), std::string::npos) << error.what();
  EXPECT_NE(error.message().find("has said nothing"), std::string::npos) << error.what();
  cluster.worker(1).send(SIGKILL);
}

TEST(Cluster, WithoutACoordinatorEverybodyEnds) {
  MlpOptions options;
  TestCluster cluster(on_hosts({"a", "a"}));
  Client client(cluster.credentials());
  Session session(testing::mlp(tables().ops, options), parse_config(four, "test.toml"), tables(), client.start());
  fill(session, options);
  cluster.end_coordinator();
  Error error = failure_of_steps(session, options);
  EXPECT_NE(std::string(error.what()).find("the coordinator"), std::string::npos) << error.what();
  for (size_t i = 0; i < cluster.workers(); ++i) {
    auto& ended = cluster.worker(i).wait(testing::in_seconds(10));
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->exit_code(), 0) << ended->text();
  }
  EXPECT_THROW(client.connector.cluster(), Error);  // a new connection, to nobody
}

// As a program of its own it trains until it is killed.
TEST(Cluster, AKilledClientLeavesIdleWorkers) {
  if (getenv("SLUICE_TEST_CLIENT")) {
    MlpOptions options;
    Connector connector;
    Session session(testing::mlp(tables().ops, options), parse_config(four, "test.toml"), tables(),
                    connector.start_with(tables(), default_config()));
    fill(session, options);
    failure_of_steps(session, options);
    return;
  }
  TestCluster cluster(on_hosts({"a", "a"}));
  Process client(cluster.program("Cluster.AKilledClientLeavesIdleWorkers", {{"SLUICE_TEST_CLIENT", "1"}}));
  ASSERT_TRUE(cluster.wait_for([&] { return cluster.coordinator().workers()[0].runs == 1; }));
  client.send(SIGKILL);
  EXPECT_TRUE(cluster.idle());
  Client other(cluster.credentials());
  expect_equal(train(four, other.start(), 2), train(four, {}, 2));
}

// ---- devices

TEST(Cluster, AClientWaitsForDevicesThatAnotherHas) {
  auto with = on_hosts({"a", "a"});
  with.devices = 2;
  TestCluster cluster(with);
  Client one(cluster.credentials()), two(cluster.credentials());
  auto job = testing::mlp(tables().ops, {});
  auto config = parse_config(four, "test.toml");
  auto first = std::make_unique<Session>(job, config, tables(), one.start());
  auto same = std::make_unique<Session>(job, config, tables(), one.start());  // a client's runs share its devices
  Plan plan = make_plan(job, config, {tables().ops, tables().moves});
  std::string notice;
  std::atomic<bool> waits{false}, runs{false};
  std::thread waiting([&] {
    auto second = two.connector.cluster()->start({.plan = &plan,
                                                  .on_notice = [&](auto& text) { notice = text; },
                                                  .while_waiting = [&] { waits = !notice.empty(); }});
    runs = true;
  });
  EXPECT_TRUE(cluster.wait_for([&] { return waits.load(); }));
  first.reset();
  EXPECT_TRUE(cluster.wait_for([&] { return cluster.coordinator().workers()[0].runs == 1; }));
  EXPECT_FALSE(runs.load());
  same.reset();
  waiting.join();
  EXPECT_TRUE(runs.load());
  EXPECT_NE(notice.find("waiting for 4 devices"), std::string::npos) << notice;
}

TEST(Cluster, WhoWaitsCanBeInterruptedAndWhatNeverFitsIsRefused) {
  auto with = on_hosts({"a"});
  with.devices = 2;
  TestCluster cluster(with);
  Client one(cluster.credentials()), two(cluster.credentials());
  auto job = testing::mlp(tables().ops, {});
  auto pair = parse_config("[mesh]\naxes = { dp = 2 }\n", "test.toml");
  Session first(job, pair, tables(), one.start());
  auto interrupted = two.connector.start_with(tables(), default_config(),
                                              [] { throw Error(Code::cancelled, "interrupted while it waited"); });
  EXPECT_EQ(failure_of([&] { Session(job, pair, tables(), interrupted); }).message(), "interrupted while it waited");
  Error never = failure_of([&] { Session(job, parse_config(four, "test.toml"), tables(), two.start()); });
  EXPECT_NE(never.message().find("needs 4 devices"), std::string::npos) << never.what();
  TestCluster empty(on_hosts({}));
  Client nobody(empty.credentials());
  Error none = failure_of([&] { Session(job, pair, tables(), nobody.start()); });
  EXPECT_NE(none.message().find("no workers"), std::string::npos) << none.what();
}

// ---- who is not let in, while others train

int connect_to(const Address& address) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(uint16_t(address.port));
  inet_pton(AF_INET, address.host.c_str(), &to.sin_addr);
  return connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 ? fd : (close(fd), -1);
}

TEST(Cluster, StrangersAtTheDoorDisturbNobody) {
  Trained want = train(four, {}, 20);
  TestCluster cluster(on_hosts({"a", "b"}));
  auto to = cluster.credentials();
  std::atomic<bool> over{false};
  std::vector<int> half_open;
  std::thread strangers([&] {
    std::mt19937 random(1);
    for (int i = 0; i < 400; ++i) half_open.push_back(connect_to(to.address));
    for (int i = 0; i < 4; ++i)  // and some that begin with what overflows a reader of Cap'n Proto
      [[maybe_unused]] auto sent = send(half_open[size_t(i)], "\xff\xff\xff\xff", 4, MSG_NOSIGNAL);
    while (!over) {
      int fd = connect_to(to.address);
      std::string junk = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
      if (random() % 2)
        for (auto& c : junk) c = char(random());
      [[maybe_unused]] auto sent = send(fd, junk.data(), junk.size(), MSG_NOSIGNAL);
      close(fd);
      Credentials wrong{to.address, make_secret()};
      EXPECT_THROW(Cluster{wrong}, Error);
    }
  });
  Client client(to);
  expect_equal(train(four, client.start(), 20), want);
  over = true;
  strangers.join();
  for (int fd : half_open) close(fd);
}

TEST(Cluster, AnotherSecretIsRefusedByName) {
  TestCluster cluster(on_hosts({}));
  Credentials wrong{cluster.credentials().address, make_secret()};
  EXPECT_NE(failure_of([&] { Cluster{wrong}; }).message().find("has another secret"), std::string::npos);
  WorkerOptions worker{.to = wrong};
  EXPECT_NE(failure_of([&] { run_worker(worker, -1); }).message().find("has another secret"), std::string::npos);
  EXPECT_TRUE(cluster.coordinator().workers().empty());
}

// ---- nothing stays behind

size_t files_open() {
  std::filesystem::directory_iterator all("/proc/self/fd");
  return size_t(std::distance(begin(all), end(all)));
}

long resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::atol(line.c_str() + 6);
  return 0;
}

void run_shortly(Client& client) {
  MlpOptions options{.widths = {4, 4, 4}, .dropout = 0};
  Session session(testing::mlp(tables().ops, options), parse_config("[mesh]\naxes = { dp = 2 }\n", "test.toml"),
                  tables(), client.start());
  step(session, options, 0, options.batch);
}

TEST(Cluster, StartingAndStoppingLeavesNothing) {
  auto cycle = [] {
    TestCluster cluster(on_hosts({"a", "a"}));
    Client client(cluster.credentials());
    run_shortly(client);
  };
  for (int i = 0; i < 5; ++i) cycle();
  size_t files = files_open();
  long kib = resident_kib();
  for (int i = 0; i < 45; ++i) cycle();
  EXPECT_EQ(files_open(), files);
  EXPECT_LT(resident_kib(), kib + 8 * 1024);
  for (auto& file : std::filesystem::directory_iterator("/dev/shm"))
    EXPECT_EQ(file.path().string().find("sluice"), std::string::npos) << file.path();
}

TEST(Cluster, RunsOnStandingWorkersLeaveNothing) {
  TestCluster cluster(on_hosts({"a", "a"}));
  Client client(cluster.credentials());
  auto kib_of_worker = [&] {
    std::ifstream status("/proc/" + std::to_string(cluster.worker(0).pid()) + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmRSS:")) return std::atol(line.c_str() + 6);
    return 0L;
  };
  auto files_of_worker = [&] {
    std::filesystem::directory_iterator all("/proc/" + std::to_string(cluster.worker(0).pid()) + "/fd");
    return std::distance(begin(all), end(all));
  };
  for (int i = 0; i < 10; ++i) run_shortly(client);
  ASSERT_TRUE(cluster.idle());
  auto files = files_of_worker();
  long kib = kib_of_worker();
  for (int i = 0; i < 50; ++i) run_shortly(client);
  ASSERT_TRUE(cluster.idle());
  EXPECT_EQ(files_of_worker(), files);
  EXPECT_LT(kib_of_worker(), kib + 8 * 1024);
}

}  // namespace
}  // namespace sluice
