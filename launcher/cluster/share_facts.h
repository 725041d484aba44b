// SPDX-License-Identifier: Apache-2.0
// What a worker finds out about its part of a run before it has a floor.
// Thread rule: pure functions, but for files.
#pragma once
#include "launcher/cluster/messages.h"

namespace sluice {

// Threads and workers for this part; the host's cores are shared with the other workers on it.
FloorOptions floor_options(const Plan& plan, const Setup& setup);
// Bytes of a fed array at its bound; nothing: no such input.
std::optional<uint64_t> input_limit(const Plan& plan, const std::string& name);
// The paths of the plug-ins that the plan was made with, which have to lie here too, byte for byte: compared before
// they are loaded. Throws Error.
std::vector<std::string> same_plugins(const Request& request);

}  // namespace sluice
