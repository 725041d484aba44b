// SPDX-License-Identifier: Apache-2.0
// A plan's actors and registers in simulated time: the same state machines as the floor runs, on one rank, with random
// times for firings and messages and no data. What it shows holds for every timing.
// Checked on the way (a violation is a broken invariant): credits are never exceeded, tokens arrive in order, each
// reader gets each token once.
// Thread rule: a pure function.
#pragma once
#include <map>
#include <string>

#include "plan/plan.h"
#include "protocol/actor.h"

namespace sluice {

struct SimulateOptions {
  int64_t steps = 2;
  uint64_t seed = 0;
  int delay_max = 20;  // ticks of a firing and of a message
};

struct Simulated {
  bool done = false;  // every actor fired all its steps
  std::string stall;  // else: who waits for whom
  int64_t firings = 0;
  std::map<std::string, uint32_t> full_max;  // per register: most full slots at once
  bool empty = false;                        // at the end every register holds just its initial tokens
};

Simulated simulate(const Plan& plan, std::span<const ActorDef* const> kinds, const SimulateOptions& options);

}  // namespace sluice
