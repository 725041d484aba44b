// SPDX-License-Identifier: Apache-2.0
#include "protocol/kinds/gated.h"

namespace sluice::kinds {

extern constinit const ActorDef source{
    .name = "source",
    .doc = "Reads the rows of a granted step from a data source, one micro-batch a firing.",
    .gated = true,
    .on_input = take_input,
    .on_credit = take_credit,
    .on_stop = close_gate,
};

}  // namespace sluice::kinds
