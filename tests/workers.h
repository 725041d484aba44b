// SPDX-License-Identifier: Apache-2.0
// A standing cluster of worker processes on this machine: a coordinator here, `sluice worker` children of the command
// that lies beside the test.
// Thread rule: the thread that made it; it has to stay (workers die with it).
#pragma once
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "launcher/cluster/cluster.h"
#include "launcher/guard.h"
#include "launcher/process.h"
#include "launcher/session.h"

namespace sluice::testing {

class Workers {
 public:
  // A worker for each label of a host.
  explicit Workers(const std::vector<std::string>& hosts, int silence_ms_max = 20'000) {
    CoordinatorOptions options;
    options.secret = make_secret();
    options.silence_ms_max = silence_ms_max;
    secret_file_ = make_nameless_file(text_of(options.secret));
    credentials_.secret = options.secret;
    coordinator_ = std::make_unique<Coordinator>(options);
    credentials_.address = {"127.0.0.1", coordinator_->port()};
    for (auto& host : hosts) start(host);
    if (!coordinator_->wait_for_workers(int(hosts.size()), std::chrono::seconds(60)))
      throw Error(Code::failed, "the workers did not join within a minute");
    cluster_ = std::make_unique<Cluster>(credentials_);
  }
  ~Workers() {
    cluster_.reset();
    coordinator_.reset();  // dismisses the workers
    for (auto& worker : processes_) {
      auto ended = worker.wait(std::chrono::steady_clock::now() + std::chrono::seconds(20));
      EXPECT_TRUE(ended && ended->exit_code() == 0) << (ended ? ended->text() : "a worker did not end");
    }
  }

  StartPlan start_plan() {
    return [this](const Plan& plan, const FloorOptions& options) {
      return cluster_->start({.plan = &plan, .floor = options, .name = plan.job});
    };
  }
  Cluster& cluster() { return *cluster_; }
  Coordinator& coordinator() { return *coordinator_; }
  const Credentials& credentials() const { return credentials_; }
  Process& process(size_t i) { return processes_[i]; }

 private:
  void start(const std::string& host) {
    std::string command = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "sluice";
    ProcessSpec spec{.words = {command, "worker", "--host", host}};
    spec.variables = {{"SLUICE_CLUSTER", "127.0.0.1:" + std::to_string(coordinator_->port())},
                      {"SLUICE_SECRET_FILE", path_of(secret_file_)}};
    processes_.emplace_back(spec);
  }

  Handle secret_file_;
  Credentials credentials_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<Process> processes_;
  std::unique_ptr<Cluster> cluster_;
};

}  // namespace sluice::testing
