// SPDX-License-Identifier: Apache-2.0
#include "comm/change.h"

namespace sluice::moves {

extern constinit const MoveDef slice{.name = "slice",
                                     .doc = "B -> S: every rank keeps its slice of its own copy; nothing is sent.",
                                     .matches = [](const PlacedType& from, const PlacedType& to) {
                                       return changes_only(
                                           from, to, [](Sbp a, Sbp b) { return a.kind == Sbp::B && b.is_split(); });
                                     }};

}  // namespace sluice::moves
