// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "planner/rewrite.h"

namespace sluice::passes {
namespace {

// Gradients scaled so that their global norm is at most max_norm: torch.nn.utils.clip_grad_norm_, as nodes. The norm
// counts every element of the logical gradients once, wherever their parts live.
void clip(PlanState& state, Builder& build, double max_norm) {
  auto& variables = state.graph().variables;
  TensorId total = no_tensor;
  for (size_t v = 0; v < state.gradients.size(); ++v) {
    if (state.gradients[v] == no_tensor) continue;
    build.of = variables[v].name;
    TensorId squares = build.op("sum", {build.op("square", {state.gradients[v]})});
    if (build.type(squares).dtype != DType::float64) {
      // One dtype for the whole norm, so that parameters of several dtypes may be clipped together.
      squares = build.op("astype", {squares}, {{"dtype", DType::float64}});
    }
    build.of.clear();
    total = total == no_tensor ? squares : build.op("add", {total, squares});
  }
  if (total == no_tensor) return;
  TensorId scale = build.op("clip_scale", {total}, {{"max_norm", max_norm}});
  for (size_t v = 0; v < state.gradients.size(); ++v) {
    auto& gradient = state.gradients[v];
    if (gradient == no_tensor) continue;
    build.of = variables[v].name;
    DType dtype = build.type(gradient).dtype;
    TensorId factor = build.type(scale).dtype == dtype ? scale : build.op("astype", {scale}, {{"dtype", dtype}});
    gradient = build.op("multiply", {gradient, factor});
  }
  build.of.clear();
}

TensorId state_variable(Builder& build, const std::string& name, const LogicalType& type, const std::string& of) {
  for (auto& variable : build.graph().variables)
    if (variable.name == name) return variable.value;
  return build.variable(name, type, false, of);
}

void update(PlanState& state, Builder& build, const OpDef& op, size_t v) {
  auto& graph = state.graph();
  std::string name = graph.variables[v].name;
  build.of = name;
  auto type = graph.type(graph.variables[v].value);
  std::vector<TensorId> inputs(2 + op.states.size());
  inputs[0] = graph.variables[v].value;
  inputs[1] = state.gradients[v];
  for (auto& each : op.states) {
    auto state_type = each.scalar ? LogicalType{DType::float32, {}} : type;
    inputs[size_t(each.input)] = state_variable(build, fmt::format("{}.{}", name, each.name), state_type, name);
  }
  auto outputs = build.ops(op.name, inputs, state.job.optimizer_attrs);
  graph.variables[v].next = outputs[0];
  for (auto& each : op.states)
    for (auto& variable : graph.variables)
      if (variable.value == inputs[size_t(each.input)]) variable.next = outputs[size_t(each.output)];
}

}  // namespace

static void run(PlanState& state) {
  if (state.job.optimizer.empty() || !state.job.training) return;
  auto& op = state.tables.ops.at(state.job.optimizer);
  if (op.states.empty())
    throw Error(Code::value, fmt::format("'{}' is no optimizer", state.job.optimizer), {}, "use sgd, adam or adamw");
  Builder build(state.graph(), state.tables.ops);
  build.phase = Phase::optimizer;
  if (double max_norm = state.config.clip_norm.value; max_norm > 0) clip(state, build, max_norm);
  for (size_t v = 0; v < state.gradients.size(); ++v)
    if (state.gradients[v] != no_tensor) update(state, build, op, v);
  std::vector<TensorId> roots;
  for (auto& output : state.graph().outputs) roots.push_back(output.tensor);
  for (auto& variable : state.graph().variables)
    if (variable.next != no_tensor) roots.push_back(variable.next);
  remove_dead(state.job, roots);
}

extern constinit const PassDef optimize{
    .name = "optimize",
    .doc = "Adds clipping by global norm and the optimizer's update of every variable, with its states, as nodes.",
    .run = run,
};

}  // namespace sluice::passes
