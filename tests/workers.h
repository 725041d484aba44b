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

struct WorkerPlace {
  std::string host;                 // its label
  std::string listen;               // its data connections' address; "": loopback
  std::vector<std::string> before;  // words before the command: "ip netns exec NAME"
};

class Workers {
 public:
  // A worker for each label of a host.
  explicit Workers(const std::vector<std::string>& hosts) : Workers(places_of(hosts), "127.0.0.1") {}
  Workers(const std::vector<WorkerPlace>& places, const std::string& listen, int silence_ms_max = 20'000) {
    CoordinatorOptions options;
    options.listen = listen;
    options.secret = make_secret();
    options.silence_ms_max = silence_ms_max;
    secret_file_ = make_nameless_file(text_of(options.secret));
    credentials_.secret = options.secret;
    coordinator_ = std::make_unique<Coordinator>(options);
    credentials_.address = {listen, coordinator_->port()};
    for (auto& place : places) start(place);
    if (!coordinator_->wait_for_workers(int(places.size()), std::chrono::seconds(60)))
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
  static std::vector<WorkerPlace> places_of(const std::vector<std::string>& hosts) {
    std::vector<WorkerPlace> places;
    for (auto& host : hosts) places.push_back({host});
    return places;
  }

  void start(const WorkerPlace& place) {
    std::string command = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "sluice";
    ProcessSpec spec{.words = place.before};
    spec.words.insert(spec.words.end(), {command, "worker", "--host", place.host});
    if (!place.listen.empty()) spec.words.insert(spec.words.end(), {"--listen", place.listen});
    auto& address = credentials_.address;
    spec.variables = {{"SLUICE_CLUSTER", address.host + ":" + std::to_string(address.port)},
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
