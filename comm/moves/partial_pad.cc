// SPDX-License-Identifier: Apache-2.0
#include "comm/change.h"

namespace sluice::moves {

extern constinit const MoveDef partial_pad{
    .name = "partial_pad",
    .doc = "S or B -> P: a rank's own slice (S), or the copy of coordinate 0 (B), among zeros; nothing is sent.",
    .matches = [](const PlacedType& from, const PlacedType& to) {
      return changes_only(from, to, [](Sbp a, Sbp b) { return !a.is_partial() && b.kind == Sbp::P; });
    }};

}  // namespace sluice::moves
