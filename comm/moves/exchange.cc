// SPDX-License-Identifier: Apache-2.0
#include "comm/move.h"

namespace sluice::moves {

extern constinit const MoveDef exchange{
    .name = "exchange",
    .doc = "Anything to anything in one hop: every rank collects the pieces that it lacks.",
    .matches = [](const PlacedType&, const PlacedType&) { return true; },
    .fallback = true};

}  // namespace sluice::moves
