// SPDX-License-Identifier: Apache-2.0
// Over several partial axes at once it is one reduction, not one an axis. Small values, and pairs of ranks, are
// reduced in one hop by the move `all_reduce_direct`.
#include "comm/change.h"

namespace sluice::moves {

static bool reduces(Sbp a, Sbp b) { return a.is_partial() && b.kind == Sbp::B; }

static std::vector<bool> kept(const PlacedType& from, const PlacedType& to) {
  std::vector<bool> kept;
  for (size_t a = 0; a < from.sbp.size(); ++a) kept.push_back(from.sbp[a] == to.sbp[a]);
  return kept;
}

extern constinit const MoveDef all_reduce{
    .name = "all_reduce",
    .doc = "P -> B in two hops, P -> S(d) -> B, where some dim has a slice for every rank.",
    .matches = [](const PlacedType& from,
                  const PlacedType& to) { return changes_only(from, to, reduces) && scattered(from, kept(from, to)); },
    .between = [](const PlacedType& from,
                  const PlacedType& to) { return std::vector<PlacedType>{*scattered(from, kept(from, to))}; }};

}  // namespace sluice::moves
