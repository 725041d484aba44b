// SPDX-License-Identifier: Apache-2.0
#include "protocol/actor.h"

namespace sluice::kinds {

extern constinit const ActorDef sink{
    .name = "sink",
    .doc = "Hands the outputs of a step to the client; it has no out-ports.",
    .on_input = take_input,
    .on_credit = take_credit,
    .on_stop = halt,
};

}  // namespace sluice::kinds
