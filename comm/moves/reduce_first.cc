// SPDX-License-Identifier: Apache-2.0
// Partial values are the largest thing to send: every destination needs all of them. So they are reduced where they
// are, a slice on each rank, before anything else happens to them.
#include "comm/change.h"

namespace sluice::moves {

// Axes that the second hop may leave partial: the same entry at the same place.
static std::vector<bool> stays(const PlacedType& from, const PlacedType& to) {
  bool same = same_place(*from.mesh, *to.mesh);
  std::vector<bool> stays;
  for (size_t a = 0; a < from.sbp.size(); ++a) stays.push_back(same && from.sbp[a] == to.sbp[a]);
  return stays;
}

extern constinit const MoveDef reduce_first{
    .name = "reduce_first",
    .doc = "P and other changes at once, or P to another mesh: reduced to slices at the source, then moved.",
    .matches = [](const PlacedType& from,
                  const PlacedType& to) { return scattered(from, stays(from, to)).has_value(); },
    .between = [](const PlacedType& from,
                  const PlacedType& to) { return std::vector<PlacedType>{*scattered(from, stays(from, to))}; }};

}  // namespace sluice::moves
