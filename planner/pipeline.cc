// SPDX-License-Identifier: Apache-2.0
// The planner's table of contents.
#include <fmt/format.h>

#include <array>
#include <chrono>

#include "plan/verify.h"
#include "planner/pass.h"

namespace sluice {
namespace {

constexpr std::array order{
    "canonicalise",   // dead nodes go; the batch gets its bound
    "differentiate",  // gradients of all trainable variables
    "optimize",       // clipping and the optimizer, as nodes
    "micro_batch",    // rates: what fires per micro-batch, what per step; accumulation
    "stages",         // meshes, pipeline stages, servers: where every node runs
    "place",          // SBP of every operand by least cost
    "moves",          // a hop wherever an edge changes its type
    "layouts",        // which transposes are only a way to read memory
    "order",          // one order of the items of a rank
    "chains",         // maximal runs of ops become actors
    "registers",      // what passes between actors, in how many slots
    "memory",         // offsets
    "emit",           // streams, keys, notes
};

const PassDef& pass_named(std::string_view name) {
  for (auto* pass : builtin_passes())
    if (pass->name == name) return *pass;
  broken_invariant("the pipeline names a pass that has no file", std::source_location::current());
}

}  // namespace

int PlanState::variable_of(TensorId value) const {
  for (size_t v = 0; v < graph().variables.size(); ++v)
    if (graph().variables[v].value == value) return int(v);
  return -1;
}

std::string text_of(const PlanState& state) {
  std::string text = text_of(state.graph());
  for (size_t n = 0; n < state.nodes.size(); ++n) {
    auto& info = state.nodes[n];
    text += fmt::format("at {}: class {}{}", state.graph().nodes[n].name, info.cls, info.micro ? " micro" : "");
    for (auto& nd : info.sbp.in) text += " " + text_of(nd);
    if (!info.sbp.out.empty()) text += " ->";
    for (auto& nd : info.sbp.out) text += " " + text_of(nd);
    text += "\n";
  }
  return text + text_of(state.plan);
}

Plan make_plan(const Job& job, const Config& config, const PlanTables& tables,
               const std::function<void(std::string_view, double, const std::string&)>& observe) {
  check(order.size() == builtin_passes().size(), "every pass stands in the pipeline once");
  PlanState state{.job = job, .config = config, .tables = tables};
  for (auto* name : order) {
    auto begin = std::chrono::steady_clock::now();
    pass_named(name).run(state);
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (observe) observe(name, took.count(), text_of(state));
  }
  verify(state.plan, tables.ops);
  return std::move(state.plan);
}

}  // namespace sluice
