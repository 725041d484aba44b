// SPDX-License-Identifier: Apache-2.0
// PassDef: one step of planning, one file in planner/passes/; the order is planner/pipeline.cc's.
// A pass reads and writes PlanState; what it decides for a node or tensor stands beside the graph by id.
// No pass names an op: what it needs to know about one is in OpDef (the exceptions are nodes that a pass itself adds:
// accumulate, and what clipping by global norm is composed of).
// Thread rule: pure functions on their state.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/build.h"
#include "planner/planner.h"

namespace sluice {

// One axis-wise placement of a node: the NdSbp of every operand.
struct NodePlacement {
  std::vector<NdSbp> in, out;
};

struct NodeInfo {
  int cls = -1;        // the class (mesh) it runs on
  bool micro = false;  // fires once a micro-batch; else once a step
  NodePlacement sbp;
};

struct VariableInfo {
  int cls = -1;
  int staleness = 0;
  std::map<std::string, std::string> pins;  // axis -> SBP, from the rules
  NdSbp sbp;
};

// What becomes an op of a chain or an actor of its own.
struct Item {
  enum class Kind : uint8_t { op, hop, source, feed, sink } kind = Kind::op;
  NodeId node = -1;                // op
  std::string name, move;          // hop: the MoveDef's name
  std::vector<int> in, out;        // plan tensors
  std::vector<std::string> names;  // source: fields; feed, sink: names, one a tensor
  int cls = 0, stream = 0;
  int source = -1;
  bool micro = false;
  Phase phase = Phase::forward;
  int depth = 0;   // the chain pass's level
  int actor = -1;  // index into plan.actors
};

struct PlanState {
  Job job;
  const Config& config;
  const PlanTables& tables;
  int micro_batches = 1;
  int stages = 1;
  int client = 0;                                  // the class of feeds and sinks
  std::vector<NodeInfo> nodes;                     // by NodeId
  std::vector<VariableInfo> variables;             // by index into graph.variables
  std::vector<TensorId> gradients;                 // by index into graph.variables; no_tensor: none
  std::vector<Item> items;                         // in topological order, from the pass `moves` on
  std::vector<int> root;                           // plan tensor -> the tensor whose memory it views (itself mostly)
  std::vector<int> variable_value, variable_next;  // by variable: its plan tensors; next -1: a constant
  Plan plan;

  Graph& graph() { return job.graph; }
  const Graph& graph() const { return job.graph; }
  const Mesh& mesh(int cls) const { return plan.classes[size_t(cls)].mesh; }
  int variable_of(TensorId value) const;  // index into graph.variables, or -1
};

struct PassDef {
  std::string_view name, doc;
  void (*run)(PlanState&) = nullptr;
};
std::span<const PassDef* const> builtin_passes();  // written by CMake

std::string text_of(const PlanState& state);  // for goldens: the graph with placements, then the plan's text

}  // namespace sluice
