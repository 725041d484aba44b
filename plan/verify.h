// SPDX-License-Identifier: Apache-2.0
// The verifier: proves that a plan can run. Throws Error that names the actor, the register and the reason.
//   structure every index is in range, every count and size is sane: what any reader of a plan may rely on. decode()
//             and parse_plan() have checked it; the other proofs check it first
//   types     every op's operands have a legal signature on every axis; moves keep the logical type; layouts fit
//   rates     balanced: firings / period agree over every register
//   liveness  no token-free cycle: the plan is played on tokens alone (it is a marked graph: any order tells the same)
//             for two steps, once its rates balance; on a stall the message holds the wait-for cycle with actors and
//             credits
//   memory    slots, scratch and workspaces lie inside the arena; live ranges that overlap do not share bytes,
//             but for aliases that the op allows
// Thread rule: pure functions.
#pragma once
#include "kernels/op.h"
#include "plan/plan.h"

namespace sluice {

void verify_structure(const Plan& plan);
void verify_types(const Plan& plan, const OpTable& ops);
void verify_rates(const Plan& plan);
void verify_liveness(const Plan& plan);
void verify_memory(const Plan& plan, const OpTable& ops);
void verify(const Plan& plan, const OpTable& ops);  // all of them

}  // namespace sluice
