// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "planner/rewrite.h"

namespace sluice::passes {
namespace {

bool has_batch(const LogicalType& type) {
  return std::any_of(type.shape.begin(), type.shape.end(), [](const Dim& dim) { return dim.sym != fixed_sym; });
}

// Which tensors come once a micro-batch: those that depend on one. Optimizer nodes fire once a step.
std::vector<bool> micro_tensors(const Graph& graph) {
  std::vector<bool> micro(graph.tensors.size(), false);
  for (auto& input : graph.inputs)
    micro[size_t(input.tensor)] = input.source >= 0 || has_batch(graph.type(input.tensor));
  for (auto& node : graph.nodes) {
    if (node.phase == Phase::optimizer) continue;
    bool any = false;
    for (TensorId in : node.inputs) any = any || micro[size_t(in)];
    for (TensorId out : node.outputs) micro[size_t(out)] = any || has_batch(graph.type(out));
  }
  return micro;
}

class Accumulator {
 public:
  explicit Accumulator(PlanState& state) : graph_(state.graph()), build_(graph_, state.tables.ops) {}

  // The sum of a tensor over the micro-batches of a step.
  TensorId sum(TensorId tensor) {
    if (auto at = done_.find(tensor); at != done_.end()) return at->second;
    NodeId producer = graph_.tensor(tensor).producer;
    check(producer >= 0, "only a node's result is summed over micro-batches");
    auto& node = graph_.nodes[size_t(producer)];
    build_.place = node.place;
    build_.phase = node.phase;
    build_.origin = node.origin >= 0 ? node.origin : producer;
    TensorId total = build_.op("accumulate", {tensor});
    return done_[tensor] = total;
  }

 private:
  Graph& graph_;
  Builder build_;
  std::map<TensorId, TensorId> done_;
};

void insert_accumulation(PlanState& state, const std::vector<bool>& micro) {
  auto& graph = state.graph();
  Accumulator accumulate(state);
  size_t nodes = graph.nodes.size();
  for (size_t n = 0; n < nodes; ++n) {
    if (graph.nodes[n].phase != Phase::optimizer) continue;
    for (size_t i = 0; i < graph.nodes[n].inputs.size(); ++i) {
      TensorId in = graph.nodes[n].inputs[i];
      if (micro[size_t(in)]) {
        TensorId total = accumulate.sum(in);
        graph.nodes[n].inputs[i] = total;
      }
    }
  }
  for (auto& output : graph.outputs)
    if (micro[size_t(output.tensor)] && !has_batch(graph.type(output.tensor)) &&
        graph.tensor(output.tensor).producer >= 0)
      output.tensor = accumulate.sum(output.tensor);
  for (auto& variable : graph.variables)
    if (variable.next != no_tensor && size_t(variable.next) < micro.size() && micro[size_t(variable.next)])
      throw Error(Code::value,
                  fmt::format("the next value of '{}' is computed from a micro-batch, but it changes once a step",
                              variable.name),
                  {}, "leave micro_batch at global_batch, or compute it from values of the whole batch");
  sort_nodes(graph);
}

}  // namespace

static void run(PlanState& state) {
  auto& graph = state.graph();
  int64_t batch = graph.batch_bound, micro = state.config.micro_batch.value;
  state.micro_batches = batch > 0 && micro > 0 ? int(piece_bound(batch, std::min(micro, batch))) : 1;
  if (state.micro_batches > 1) {
    insert_accumulation(state, micro_tensors(graph));
    rebind_batch(graph, piece_bound(batch, state.micro_batches));
    graph.batch_bound = batch;  // the bound of a step; the symbol's dims now hold a micro-batch
  }
  state.nodes.assign(graph.nodes.size(), {});
  if (state.micro_batches == 1) return;
  auto tensors = micro_tensors(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    auto& node = graph.nodes[n];
    bool accumulates = state.tables.ops.at(node.op).rate == Rate::accumulate;
    state.nodes[n].micro = node.phase != Phase::optimizer && (accumulates || tensors[size_t(node.outputs[0])]);
  }
}

extern constinit const PassDef micro_batch{
    .name = "micro_batch",
    .doc = "Finds what fires once a micro-batch and what once a step, and sums what crosses from one to the other.",
    .run = run,
};

}  // namespace sluice::passes
