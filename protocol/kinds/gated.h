// SPDX-License-Identifier: Apache-2.0
// What sources and feeds share: on a stop they give up the steps that were granted but not begun.
// Thread rule: as protocol/actor.h.
#pragma once
#include "protocol/actor.h"

namespace sluice::kinds {

inline void close_gate(ActorState& actor) {
  InPort& gate = actor.in[0];
  gate.tokens = gate.left < gate.period ? 1 : 0;
  halt(actor);
  settle(actor);
}

}  // namespace sluice::kinds
