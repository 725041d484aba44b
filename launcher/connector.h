// SPDX-License-Identifier: Apache-2.0
// Where the sessions of a process run: on a cluster, or here. Made once, by main or the Python module, and handed on.
// Invariant: one connection for all sessions, made at the first one, and again after the coordinator was lost.
// Thread rule: any thread.
#pragma once
#include <mutex>

#include "launcher/cluster/cluster.h"
#include "launcher/session.h"

namespace sluice {

class Connector {
 public:
  Connector() : Connector(cluster_of_environment()) {}  // throws Error as that does
  explicit Connector(std::optional<Credentials> to) : to_(std::move(to)) {}

  // What a Session is given: empty where it runs here. `while_waiting` is called now and then until the plan runs, and
  // may throw. The connector has to outlive it.
  StartPlan start_with(const Tables& tables, const Config& config, std::function<void()> while_waiting = {});
  std::shared_ptr<Cluster> cluster();  // connects; throws Error; null: there is none

 private:
  std::optional<Credentials> to_;
  std::mutex mutex_;
  std::shared_ptr<Cluster> cluster_;  // guarded by mutex_
};

}  // namespace sluice
