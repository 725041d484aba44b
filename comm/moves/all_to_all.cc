// SPDX-License-Identifier: Apache-2.0
#include "comm/change.h"

namespace sluice::moves {

extern constinit const MoveDef all_to_all{
    .name = "all_to_all",
    .doc = "S(i) -> S(j): every rank sends each other one the part of its slice that belongs there.",
    .matches = [](const PlacedType& from, const PlacedType& to) {
      return changes_only(from, to, [](Sbp a, Sbp b) { return a.is_split() && b.is_split(); });
    }};

}  // namespace sluice::moves
