// SPDX-License-Identifier: Apache-2.0
#include "comm/change.h"

namespace sluice::moves {

extern constinit const MoveDef all_gather{
    .name = "all_gather",
    .doc = "S -> B: every rank collects the slices of the others.",
    .matches = [](const PlacedType& from, const PlacedType& to) {
      return changes_only(from, to, [](Sbp a, Sbp b) { return a.is_split() && b.kind == Sbp::B; });
    }};

}  // namespace sluice::moves
