// SPDX-License-Identifier: Apache-2.0
#include "comm/change.h"

namespace sluice::moves {

extern constinit const MoveDef reduce_scatter{
    .name = "reduce_scatter",
    .doc = "P -> S: every rank reduces its own slice of all partial values.",
    .matches = [](const PlacedType& from, const PlacedType& to) {
      return changes_only(from, to, [](Sbp a, Sbp b) { return a.is_partial() && b.is_split(); });
    }};

}  // namespace sluice::moves
