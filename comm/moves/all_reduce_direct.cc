// SPDX-License-Identifier: Apache-2.0
#include "comm/change.h"

namespace sluice::moves {

extern constinit const MoveDef all_reduce_direct{
    .name = "all_reduce_direct",
    .doc = "P -> B in one hop: every rank reduces all partial values itself. For small values and pairs of ranks.",
    .matches = [](const PlacedType& from, const PlacedType& to) {
      return changes_only(from, to, [](Sbp a, Sbp b) { return a.is_partial() && b.kind == Sbp::B; });
    }};

}  // namespace sluice::moves
