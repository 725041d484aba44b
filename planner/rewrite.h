// SPDX-License-Identifier: Apache-2.0
// Rewrites of the logical graph that several passes share. They keep nodes in topological order.
// Thread rule: pure functions on their arguments.
#pragma once
#include "planner/pass.h"

namespace sluice {

// A job may come from a file: each node must name an op of the table, carry its complete attributes, and have the
// types that the op gives its inputs. Throws Error at the node's place.
void check_nodes(const Graph& graph, const OpTable& ops);

// Removes the nodes (and tensors) that no root needs; renumbers. Inputs and variables stay.
void remove_dead(Job& job, const std::vector<TensorId>& roots);

// Binds the batch symbol anew: every bounded dim becomes granule * bound.
void rebind_batch(Graph& graph, int64_t bound);

// Stable topological order of the nodes (builders append at the end, passes may wire earlier).
void sort_nodes(Graph& graph);

}  // namespace sluice
