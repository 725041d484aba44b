// SPDX-License-Identifier: Apache-2.0
#include "protocol/actor.h"

namespace sluice::kinds {

extern constinit const ActorDef compute{
    .name = "compute",
    .doc = "Runs a chain: ops of one stream on planned offsets, with no messages between them.",
    .on_input = take_input,
    .on_credit = take_credit,
    .on_stop = halt,
};

}  // namespace sluice::kinds
