// SPDX-License-Identifier: Apache-2.0
// What both explanations of a plan count: moves with their bytes, actors by kind.
// Thread rule: pure functions.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "comm/move.h"
#include "plan/plan.h"

namespace sluice {

struct MoveSummary {
  const PlanActor* actor = nullptr;
  const PlanMove* move = nullptr;
  const PlanTensor *from = nullptr, *to = nullptr;
  MoveCost step;  // all ranks, all firings of a step, for a full batch
};
std::vector<MoveSummary> moves_of(const Plan& plan);

std::map<std::string, int> actors_by_kind(const Plan& plan, int cls);

}  // namespace sluice
