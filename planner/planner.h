// SPDX-License-Identifier: Apache-2.0
// The planner: a Job and a Config become one Plan. Passes run in the order of pipeline.cc; each is one PassDef in one
// file of planner/passes/; the verifier runs after those that finish a part of the plan.
// Thread rule: pure; plans may be made on several threads at once.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/move.h"
#include "config/config.h"
#include "kernels/op.h"
#include "plan/plan.h"

namespace sluice {

struct PlanTables {
  const OpTable& ops;
  std::span<const MoveDef* const> moves;
};

// Throws Error. `observe`, when given, gets each pass's name, milliseconds and the state's text after it.
Plan make_plan(const Job& job, const Config& config, const PlanTables& tables,
               const std::function<void(std::string_view pass, double ms, const std::string& text)>& observe = {});

}  // namespace sluice
