// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "planner/items.h"

namespace sluice::passes {
namespace {

// Smaller fires first. Backward before forward is what makes 1F1B; an update before both lets the next step begin;
// among forward chains the later one, so that what is begun is finished.
int64_t key_of(const PlanActor& actor, int depth, int depths) {
  switch (actor.phase) {
    case Phase::optimizer: return depth;
    case Phase::backward: return int64_t(depths) + depth;
    case Phase::forward: return int64_t(2) * depths + (depths - depth);
  }
  return 0;
}

}  // namespace

static void run(PlanState& state) {
  auto& plan = state.plan;
  int depths = 1;
  std::vector<int> depth(plan.actors.size(), 0);
  for (auto& item : state.items) {
    depth[size_t(item.actor)] = item.depth;
    depths = std::max(depths, item.depth + 1);
  }
  for (size_t a = 0; a < plan.actors.size(); ++a) plan.actors[a].key = key_of(plan.actors[a], depth[a], depths);
  plan.job = state.job.name;
  plan.seed = state.config.seed.value >= 0 ? uint64_t(state.config.seed.value) : state.job.seed;
  plan.micro_batches = state.micro_batches;
  plan.batch_bound = state.graph().batch_bound;
  plan.exact = state.config.reduction_order.value == "exact";
  plan.device = state.config.device.value;
  plan.sources = state.graph().sources;
  if (state.stages > 1)
    plan.notes.push_back({"pipeline", fmt::format("{} stages, {} micro-batches, {}", state.stages, state.micro_batches,
                                                  state.config.schedule.value)});
  for (auto& variable : state.graph().variables) {
    if (!variable.of.empty()) continue;
    int v = state.variable_of(variable.value);
    plan.notes.push_back({variable.name, fmt::format("{} on {}", text_of(state.variables[size_t(v)].sbp),
                                                     state.mesh(state.variables[size_t(v)].cls).name)});
  }
}

extern constinit const PassDef emit{
    .name = "emit",
    .doc = "Order keys of the actors, and what the plan says about itself.",
    .run = run,
};

}  // namespace sluice::passes
