// SPDX-License-Identifier: Apache-2.0
#include "planner/rewrite.h"

namespace sluice::passes {

static void run(PlanState& state) {
  auto& graph = state.graph();
  state.gradients.assign(graph.variables.size(), no_tensor);
  if (!state.job.training || state.job.loss == no_tensor || state.job.optimizer.empty()) return;
  std::vector<TensorId> wrt;
  std::vector<size_t> which;
  for (size_t v = 0; v < graph.variables.size(); ++v)
    if (graph.variables[v].trainable && graph.variables[v].next == no_tensor) {
      wrt.push_back(graph.variables[v].value);
      which.push_back(v);
    }
  Builder build(graph, state.tables.ops);
  auto gradients = append_gradients(build, state.job.loss, wrt);
  for (size_t i = 0; i < which.size(); ++i) state.gradients[which[i]] = gradients[i];
}

extern constinit const PassDef differentiate{
    .name = "differentiate",
    .doc = "Appends the gradients of the loss with respect to every trainable variable, before any placement.",
    .run = run,
};

}  // namespace sluice::passes
