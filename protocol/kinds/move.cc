// SPDX-License-Identifier: Apache-2.0
#include "protocol/actor.h"

namespace sluice::kinds {

extern constinit const ActorDef move{
    .name = "move",
    .doc = "Builds its rank's part of a tensor from the pieces that its peers hold.",
    .on_input = take_input,
    .on_credit = take_credit,
    .on_stop = halt,
};

}  // namespace sluice::kinds
