// SPDX-License-Identifier: Apache-2.0
// Lives of the storages in a chain: the part of the memory proof that looks inside an actor.
// Two spaces change while a chain runs: the scratch of its stream, and the slots that its own registers acquired; all
// else is only read. Time is the index of an op in its chain.
// Invariant: the plan has passed verify_structure().
// Thread rule: pure functions.
#pragma once
#include "plan/verify.h"

namespace sluice::memory {

[[noreturn]] void refuse(std::string why, const Place& place = {});  // Error(value) of the memory proof
bool overlap(int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes);
void aligned(int64_t value, std::string_view what);  // refuses what is no multiple of 64

// Whether `op` only gives its input another shape: its output lies where its input does.
bool is_view(const Plan& plan, const OpTable& ops, const PlanOp& op);

// Storages that are alive at the same time share no bytes, but where an op may write in place; workspaces lie over
// nothing that is alive; what is read was written, and what is published too. `views`: by tensor, it is a view.
void check_lives(const Plan& plan, const OpTable& ops, const std::vector<bool>& views, const PlanActor& actor);

}  // namespace sluice::memory
