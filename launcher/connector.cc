// SPDX-License-Identifier: Apache-2.0
#include "launcher/connector.h"

namespace sluice {

std::shared_ptr<Cluster> Connector::cluster() {
  if (!to_) return nullptr;
  std::lock_guard lock(mutex_);
  if (!cluster_ || cluster_->lost()) cluster_ = std::make_shared<Cluster>(*to_);
  return cluster_;
}

StartPlan Connector::start_with(const Tables& tables, const Config& config, std::function<void()> while_waiting) {
  if (!to_) return {};
  int threads = int(config.device_threads.value);
  return [this, plugins = tables.plugins, threads, while_waiting](const Plan& plan, const FloorOptions& options) {
    return cluster()->start(
        {.plan = &plan, .floor = options, .threads = threads, .plugins = plugins, .while_waiting = while_waiting});
  };
}

}  // namespace sluice
