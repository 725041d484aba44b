// SPDX-License-Identifier: Apache-2.0
// The plan, explained: a short table for people, JSON for programs. `sluice plan` and Job.plan().show() print these.
// Invariants: equal plans give equal text; the keys of the JSON are stable (a change of one is a change of the API).
// Thread rule: pure functions.
#pragma once
#include <string>

#include "plan/plan.h"

namespace sluice {

std::string show(const Plan& plan);
std::string plan_json(const Plan& plan);  // one object, indented by two spaces

std::string bytes_text(double bytes);  // "1.5 MiB", "640 B"

}  // namespace sluice
