// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <regex>

#include "planner/pass.h"

namespace sluice::passes {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

Mesh mesh_of(const MeshSetting& setting, const std::string& name, int first_rank) {
  Mesh mesh{name, {}, first_rank};
  for (auto& axis : setting.axes) mesh.axes.push_back({axis.name, int(std::max<int64_t>(axis.size, 1))});
  return mesh;
}

// The main mesh, cut along its pp axis into one class a stage; then [mesh.NAME]s; then the client on rank 0.
void make_classes(PlanState& state) {
  auto& classes = state.plan.classes;
  Mesh main = mesh_of(state.config.mesh, "main", 0);
  state.stages = 1;
  if (int pp = main.axis("pp"); pp >= 0) {
    state.stages = main.axes[size_t(pp)].size;
    main.axes.erase(main.axes.begin() + pp);
  }
  for (int s = 0; s < state.stages; ++s) {
    Mesh mesh = main;
    mesh.first_rank = s * main.size();
    if (state.stages > 1) mesh.name = fmt::format("main.{}", s);
    classes.push_back({.name = mesh.name, .mesh = mesh, .stage = s});
  }
  int next_rank = state.stages * main.size();
  for (auto& setting : state.config.meshes) {
    Mesh mesh = mesh_of(setting, setting.name, next_rank);
    next_rank += mesh.size();
    classes.push_back({.name = mesh.name, .mesh = mesh, .pool = setting.pool});
  }
  if (next_rank == 1) {
    state.client = 0;  // one device: feeds and sinks live with it, nothing is moved
  } else {
    state.client = int(classes.size());
    classes.push_back({.name = "client", .mesh = {"client", {}, 0}, .pool = "client"});
  }
}

struct VariablePins {
  std::vector<int> stage;  // by variable; -1: free
};

VariablePins apply_rules(PlanState& state) {
  auto& variables = state.graph().variables;
  state.variables.assign(variables.size(), {});
  VariablePins pins{std::vector<int>(variables.size(), -1)};
  std::vector<bool> taken(variables.size(), false);
  for (auto& rule : state.config.rules) {
    std::regex pattern(rule.match);
    bool any = false;
    for (size_t v = 0; v < variables.size(); ++v) {
      if (!variables[v].of.empty() || !std::regex_search(variables[v].name, pattern)) continue;
      any = true;
      if (taken[v]) continue;
      taken[v] = true;
      auto& info = state.variables[v];
      info.pins = rule.sbp;
      info.staleness = int(rule.staleness);
      pins.stage[v] = int(rule.stage);
      if (rule.stage >= state.stages)
        throw Error(Code::usage, fmt::format("stage = {} but there are {} pipeline stages", rule.stage, state.stages),
                    rule.place, "use a stage below the size of the axis pp");
      for (size_t c = 0; c < state.plan.classes.size(); ++c)
        if (!rule.mesh.empty() && state.plan.classes[c].name == rule.mesh) info.cls = int(c);
    }
    if (!any && !variables.empty()) {
      std::vector<std::string> names;
      for (auto& variable : variables) names.push_back(variable.name);
      std::string near = nearest(rule.match, names);
      throw Error(
          Code::usage, fmt::format("match = '{}' matches no variable", rule.match), rule.place,
          near.empty() ? fmt::format("the first variable is '{}'", names[0]) : fmt::format("did you mean '{}'?", near));
    }
  }
  return pins;
}

// Cuts the forward nodes, in order, into runs with the least largest cost; pinned nodes stay in their stage.
std::vector<int> cut(const std::vector<double>& cost, const std::vector<int>& pinned, int stages) {
  size_t n = cost.size();
  std::vector<std::vector<double>> best(size_t(stages), std::vector<double>(n + 1, never));
  std::vector<std::vector<size_t>> from(size_t(stages), std::vector<size_t>(n + 1, 0));
  auto fill = [&](int s, size_t begin, double before) {
    double sum = 0;
    for (size_t end = begin + 1; end <= n; ++end) {
      if (pinned[end - 1] >= 0 && pinned[end - 1] != s) break;
      sum += cost[end - 1];
      double worst = std::max(before, sum);
      if (worst < best[size_t(s)][end]) best[size_t(s)][end] = worst, from[size_t(s)][end] = begin;
    }
  };
  fill(0, 0, 0);
  for (int s = 1; s < stages; ++s)
    for (size_t begin = 1; begin < n; ++begin)
      if (best[size_t(s) - 1][begin] < never) fill(s, begin, best[size_t(s) - 1][begin]);
  std::vector<int> stage(n, -1);
  size_t end = n;
  for (int s = stages - 1; s >= 0; --s) {
    if (best[size_t(s)][end] == never) return {};
    for (size_t i = from[size_t(s)][end]; i < end; ++i) stage[i] = s;
    end = from[size_t(s)][end];
  }
  return stage;
}

double forward_cost(const PlanState& state, const Node& node) {
  std::vector<LogicalType> in, out;
  for (TensorId t : node.inputs) in.push_back(state.graph().type(t));
  for (TensorId t : node.outputs) out.push_back(state.graph().type(t));
  Cost cost = cost_of(state.tables.ops.at(node.op), in, out, node.attrs);
  return cost.flops + cost.bytes;
}

// Nodes that depend on variables only (a transposed weight) run where they are first used.
void follow_users(PlanState& state, const std::vector<NodeId>& forward) {
  auto& graph = state.graph();
  std::vector<bool> data(graph.tensors.size(), false);
  for (auto& input : graph.inputs) data[size_t(input.tensor)] = true;
  for (auto& node : graph.nodes)
    for (TensorId out : node.outputs)
      data[size_t(out)] =
          std::any_of(node.inputs.begin(), node.inputs.end(), [&](TensorId t) { return data[size_t(t)]; });
  for (size_t i = forward.size(); i-- > 0;) {
    auto& node = graph.nodes[size_t(forward[i])];
    if (data[size_t(node.outputs[0])]) continue;
    int first = std::numeric_limits<int>::max();
    for (NodeId user : forward)
      for (TensorId in : graph.nodes[size_t(user)].inputs)
        if (std::count(node.outputs.begin(), node.outputs.end(), in))
          first = std::min(first, state.nodes[size_t(user)].cls);
    if (first != std::numeric_limits<int>::max()) state.nodes[size_t(forward[i])].cls = first;
  }
}

void cut_stages(PlanState& state, const VariablePins& pins) {
  auto& graph = state.graph();
  std::vector<NodeId> forward;
  std::vector<double> cost;
  std::vector<int> pinned;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].phase != Phase::forward) continue;
    forward.push_back(NodeId(n));
    cost.push_back(forward_cost(state, graph.nodes[n]));
    pinned.push_back(-1);
    for (TensorId in : graph.nodes[n].inputs)
      if (int v = state.variable_of(in); v >= 0 && pins.stage[size_t(v)] >= 0) pinned.back() = pins.stage[size_t(v)];
  }
  auto stage = state.stages == 1 ? std::vector<int>(forward.size(), 0) : cut(cost, pinned, state.stages);
  if (stage.size() != forward.size())
    throw Error(Code::usage,
                fmt::format("pp = {} stages cannot be cut from {} forward ops under the stages pinned by rules",
                            state.stages, forward.size()),
                state.config.mesh.place, "use fewer stages, or pin variables in the order of the model");
  for (size_t i = 0; i < forward.size(); ++i) state.nodes[size_t(forward[i])].cls = stage[i];
  follow_users(state, forward);
}

// A variable lives where it is first used; an optimizer state where its parameter does.
void place_variables(PlanState& state) {
  auto& graph = state.graph();
  for (size_t v = 0; v < graph.variables.size(); ++v) {
    auto& info = state.variables[v];
    if (info.cls >= 0 || !graph.variables[v].of.empty()) continue;
    for (size_t n = 0; n < graph.nodes.size() && info.cls < 0; ++n)
      if (graph.nodes[n].phase == Phase::forward &&
          std::count(graph.nodes[n].inputs.begin(), graph.nodes[n].inputs.end(), graph.variables[v].value))
        info.cls = state.nodes[n].cls;
    if (info.cls < 0) info.cls = 0;
  }
  for (size_t v = 0; v < graph.variables.size(); ++v)
    for (size_t p = 0; p < graph.variables.size() && !graph.variables[v].of.empty(); ++p)
      if (graph.variables[p].name == graph.variables[v].of) {
        state.variables[v].cls = state.variables[p].cls;
        state.variables[v].pins = state.variables[p].pins;
      }
}

int class_of(const PlanState& state, TensorId tensor) {
  if (int v = state.variable_of(tensor); v >= 0) return state.variables[size_t(v)].cls;
  NodeId producer = state.graph().tensor(tensor).producer;
  return producer < 0 ? -1 : state.nodes[size_t(producer)].cls;
}

void place_rest(PlanState& state) {
  auto& graph = state.graph();
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    auto& node = graph.nodes[n];
    int& cls = state.nodes[n].cls;
    if (cls >= 0) continue;
    if (node.phase == Phase::optimizer) {
      for (size_t v = 0; v < graph.variables.size(); ++v)
        if (!node.of.empty() && graph.variables[v].name == node.of) cls = state.variables[v].cls;
    } else if (node.origin >= 0) {
      cls = state.nodes[size_t(node.origin)].cls;
    } else {
      for (TensorId in : node.inputs) cls = std::max(cls, class_of(state, in));
    }
    if (cls < 0) cls = 0;
  }
}

}  // namespace

static void run(PlanState& state) {
  make_classes(state);
  auto pins = apply_rules(state);
  cut_stages(state, pins);
  place_variables(state);
  place_rest(state);
}

extern constinit const PassDef stages{
    .name = "stages",
    .doc =
        "Gives every node and variable its mesh: pipeline stages of balanced cost, servers by rule, backward nodes "
        "with their forward node, updates with their variable.",
    .run = run,
};

}  // namespace sluice::passes
