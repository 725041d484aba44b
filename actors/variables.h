// SPDX-License-Identifier: Apache-2.0
// Variables between the client and the ranks: scattered into every slot of every rank, gathered from the slot
// published last of those ranks that hold the first copy.
// Thread rule: the client's thread, while the floor is drained.
#pragma once
#include "actors/lower.h"

namespace sluice {

// A rank's own part, row-major; the rank is here.
void set_part(World& world, Lowered& lowered, const std::string& name, int rank, const HostArray& value);
HostArray get_part(const World& world, const Lowered& lowered, const std::string& name, int rank);
// The whole, where all ranks are here.
void scatter_variable(World& world, Lowered& lowered, const std::string& name, const HostArray& value);
HostArray gather_variable(const World& world, const Lowered& lowered, const std::string& name);

}  // namespace sluice
