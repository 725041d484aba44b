// SPDX-License-Identifier: Apache-2.0
#include "comm/change.h"

namespace sluice::moves {

extern constinit const MoveDef p2p{
    .name = "p2p",
    .doc = "Between two meshes in one hop: replicas share the sending, slices meet slices.",
    .matches = [](const PlacedType& from, const PlacedType& to) { return !same_place(*from.mesh, *to.mesh); }};

}  // namespace sluice::moves
