// SPDX-License-Identifier: Apache-2.0
#include "protocol/kinds/gated.h"

namespace sluice::kinds {

extern constinit const ActorDef feed{
    .name = "feed",
    .doc = "Emits the batch that the client fed for a granted step, one micro-batch a firing.",
    .gated = true,
    .on_input = take_input,
    .on_credit = take_credit,
    .on_stop = close_gate,
};

}  // namespace sluice::kinds
