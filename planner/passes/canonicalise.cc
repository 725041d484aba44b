// SPDX-License-Identifier: Apache-2.0
#include "planner/rewrite.h"

namespace sluice::passes {

static void run(PlanState& state) {
  auto& graph = state.graph();
  check_nodes(graph, state.tables.ops);
  int64_t batch = state.config.global_batch.value > 0 && graph.batch_bound > 0 ? state.config.global_batch.value
                                                                               : graph.batch_bound;
  if (batch != graph.batch_bound) rebind_batch(graph, batch);
  std::vector<TensorId> roots;
  if (state.job.loss != no_tensor) roots.push_back(state.job.loss);
  for (auto& output : graph.outputs) roots.push_back(output.tensor);
  for (auto& variable : graph.variables)
    if (variable.next != no_tensor) roots.push_back(variable.next);
  remove_dead(state.job, roots);
}

extern constinit const PassDef canonicalise{
    .name = "canonicalise",
    .doc =
        "Checks every node against its op, removes nodes that no output, loss or next value needs, and binds the batch "
        "symbol to the global batch.",
    .run = run,
};

}  // namespace sluice::passes
