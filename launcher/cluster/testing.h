// SPDX-License-Identifier: Apache-2.0
// A cluster for tests: a coordinator here, and workers as processes of their own: this test program once more, told to
// run only the test that serves (serve_if_told).
// Thread rule: one thread.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "launcher/cluster/cluster.h"
#include "launcher/process.h"

namespace sluice::testing {

inline Deadline in_seconds(int seconds) { return std::chrono::steady_clock::now() + std::chrono::seconds(seconds); }

// In a program started as a worker: serves, and leaves with 0 (dismissed) or 3. Else: false.
inline bool serve_if_told() {
  const char* host = getenv("SLUICE_TEST_HOST");
  if (!host) return false;
  int code = 3;
  try {
    WorkerOptions options{.to = cluster_of_environment().value(), .host = host};
    options.devices = std::atoi(getenv("SLUICE_TEST_DEVICES"));
    options.silence_ms_max = std::atoi(getenv("SLUICE_TEST_SILENCE"));
    code = run_worker(options, -1);
  } catch (const Error& error) {
    fprintf(stderr, "worker: %s\n", error.what());
  }
  fflush(nullptr);
  _exit(code);
}

class TestCluster {
 public:
  struct Options {
    std::vector<std::string> hosts{"a", "a"};  // of the workers
    int devices = 0, silence_ms = 6000;
    std::string serving;  // the test that calls serve_if_told
  };
  explicit TestCluster(Options options) : options_(std::move(options)) {
    CoordinatorOptions to;
    to.secret = secret_;
    to.silence_ms_max = options_.silence_ms;
    to.on_event = [this](const ClusterEvent& event) {
      std::lock_guard lock(mutex_);
      events_.push_back(event);
    };
    coordinator_ = std::make_unique<Coordinator>(to);
    for (auto& host : options_.hosts) add_worker(host);
    if (!coordinator_->wait_for_workers(int(options_.hosts.size()), std::chrono::seconds(30)))
      throw Error(Code::failed, "the workers did not come");
  }
  ~TestCluster() {
    coordinator_.reset();
    for (auto& worker : workers_) worker->wait(in_seconds(10));
  }

  // This program, running one of its tests as a client or worker of this cluster.
  ProcessSpec program(const std::string& test, std::map<std::string, std::string> variables) const {
    ProcessSpec spec;
    spec.words = {std::filesystem::read_symlink("/proc/self/exe"), "--gtest_filter=" + test, "--gtest_brief=1"};
    spec.variables = std::move(variables);
    spec.variables["GTEST_OUTPUT"] = "";  // the results are ours
    spec.variables["SLUICE_CLUSTER"] = "127.0.0.1:" + std::to_string(coordinator_->port());
    spec.variables["SLUICE_SECRET_FILE"] = path_of(secret_file_);
    return spec;
  }
  void add_worker(const std::string& host) {
    workers_.push_back(std::make_unique<Process>(
        program(options_.serving, {{"SLUICE_TEST_HOST", host},
                                   {"SLUICE_TEST_DEVICES", std::to_string(options_.devices)},
                                   {"SLUICE_TEST_SILENCE", std::to_string(options_.silence_ms)}})));
  }

  Credentials credentials() const { return {{"127.0.0.1", coordinator_->port()}, secret_}; }
  Coordinator& coordinator() { return *coordinator_; }
  void end_coordinator() { coordinator_.reset(); }
  Process& worker(size_t i) { return *workers_[i]; }
  size_t workers() const { return workers_.size(); }

  template <class Holds>
  bool wait_for(Holds&& holds) {
    for (auto until = in_seconds(20); std::chrono::steady_clock::now() < until; usleep(2000))
      if (holds()) return true;
    return false;
  }
  // Waits until no worker takes part in a run.
  bool idle() {
    return wait_for([&] {
      int runs = 0;
      for (auto& worker : coordinator_->workers()) runs += worker.runs;
      return runs == 0;
    });
  }
  std::vector<ClusterEvent> events() {
    std::lock_guard lock(mutex_);
    return events_;
  }

 private:
  Options options_;
  Secret secret_ = make_secret();
  Handle secret_file_ = make_nameless_file(text_of(secret_));
  std::mutex mutex_;
  std::vector<ClusterEvent> events_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<std::unique_ptr<Process>> workers_;
};

}  // namespace sluice::testing
