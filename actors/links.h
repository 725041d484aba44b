// SPDX-License-Identifier: Apache-2.0
// The part of lowering that joins actors: in-ports to registers of this rank, wires to those of others. An in-port of
// the plan is one port for each peer that it hears; wires are numbered in the order of (consumer, port, peer) over the
// ranks of all processes, and each process opens the ends that it has.
// Thread rule: the client's thread, while the floor is made.
#pragma once
#include <string>

#include "actors/lower.h"

namespace sluice {

// Throws Error(value): the plan does not fit together.
void require(bool holds, const std::string& why);
// Registers and actors are made; credits are settled afterwards.
void link_all(World& world, Lowered& lowered);

}  // namespace sluice
