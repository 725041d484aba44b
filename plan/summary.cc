// SPDX-License-Identifier: Apache-2.0
#include "plan/summary.h"

namespace sluice {

std::vector<MoveSummary> moves_of(const Plan& plan) {
  std::vector<MoveSummary> moves;
  auto placed = [&](const PlanTensor& tensor) {
    return PlacedType{tensor.type, &plan.classes[size_t(tensor.cls)].mesh, tensor.sbp};
  };
  for (auto& actor : plan.actors)
    for (auto& move : actor.moves) {
      MoveSummary summary{&actor, &move, &plan.tensors[size_t(move.from)], &plan.tensors[size_t(move.to)], {}};
      PlacedType from = placed(*summary.from), to = placed(*summary.to);
      MoveCost once = cost_of(move_for(builtin_moves(), from, to), from, to);
      summary.step = {once.bytes * actor.firings, once.messages * actor.firings};
      moves.push_back(summary);
    }
  return moves;
}

std::map<std::string, int> actors_by_kind(const Plan& plan, int cls) {
  std::map<std::string, int> count;
  for (auto& actor : plan.actors)
    if (actor.cls == cls) ++count[actor.kind];
  return count;
}

}  // namespace sluice
