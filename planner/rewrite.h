// SPDX-License-Identifier: Apache-2.0
// Rewrites of the logical graph that several passes share. They keep nodes in topological order.
// Thread rule: pure functions on their arguments.
#pragma once
#include "planner/pass.h"

namespace sluice {

// Removes the nodes (and tensors) that no root needs; renumbers. Inputs and variables stay.
void remove_dead(Job& job, const std::vector<TensorId>& roots);

// Binds the batch symbol anew: every bounded dim becomes granule * bound.
void rebind_batch(Graph& graph, int64_t bound);

// Stable topological order of the nodes (builders append at the end, passes may wire earlier).
void sort_nodes(Graph& graph);

}  // namespace sluice
