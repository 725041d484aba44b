// SPDX-License-Identifier: Apache-2.0
// What changes between two placed types: the words in which moves say what they match.
// Thread rule: pure functions.
#pragma once
#include "comm/hop.h"

namespace sluice {

// Same ranks and axes, at least one axis differs, and every axis that does satisfies `change(from, to)`.
template <class F>
bool changes_only(const PlacedType& from, const PlacedType& to, F&& change) {
  if (!same_place(*from.mesh, *to.mesh) || from.sbp == to.sbp) return false;
  for (size_t a = 0; a < from.sbp.size(); ++a)
    if (from.sbp[a] != to.sbp[a] && !change(from.sbp[a], to.sbp[a])) return false;
  return true;
}

// `from` with its partial axes, but for those where `stays`, split along one dim instead: the reduce-scatter that a
// reduction should start with. Nothing when no dim has a unit for every rank.
std::optional<PlacedType> scattered(const PlacedType& from, const std::vector<bool>& stays);

}  // namespace sluice
