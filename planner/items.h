// SPDX-License-Identifier: Apache-2.0
// What the passes after `moves` share: who reads what, and which item must wait for which.
// Thread rule: pure functions.
#pragma once
#include "planner/pass.h"

namespace sluice {

const OpDef& op_of(const PlanState& state, const Item& item);  // of an op item

// By plan tensor: the items that read it.
std::vector<std::vector<int>> readers_of(const PlanState& state);
// By plan tensor: the item that writes it; -1: a variable's value.
std::vector<int> writers_of(const PlanState& state);
// By item: the items it must follow: writers of what it reads, and the readers of a variable's value before the
// item that writes its next (which lies in the same memory). Ascending, no duplicates.
std::vector<std::vector<int>> dependencies_of(const PlanState& state);

}  // namespace sluice
