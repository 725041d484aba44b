// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "planner/items.h"

namespace sluice::passes {
namespace {

class Registers {
 public:
  explicit Registers(PlanState& state) : state_(state), plan_(state.plan) {}

  void run() {
    auto writer = writers_of(state_);
    readers_.resize(plan_.tensors.size());
    for (auto& item : state_.items)
      for (int t : item.in) readers_[size_t(state_.root[size_t(t)])].insert(item.actor);
    find_levels(writer);
    for (size_t v = 0; v < state_.variable_value.size(); ++v) make_variable(v, writer);
    for (size_t t = 0; t < plan_.tensors.size(); ++t)
      if (state_.root[t] == int(t) && plan_.tensors[t].reg < 0 && writer[t] >= 0) make_for(int(t), writer[t]);
    for (size_t t = 0; t < plan_.tensors.size(); ++t) {  // views lie in their root's register
      auto& root = plan_.tensors[size_t(state_.root[t])];
      if (state_.root[t] == int(t) || root.reg < 0) continue;
      plan_.tensors[t].reg = root.reg;
      plan_.tensors[t].offset = root.offset;
      plan_.registers[size_t(root.reg)].tensors.push_back(int(t));
    }
    make_ports();
  }

 private:
  bool accumulated(const Item& item) const {
    return item.kind == Item::Kind::op && op_of(state_, item).rate == Rate::accumulate && item.micro;
  }

  // An actor's level is how many whole-step sums lie before it: it begins when the last of them is complete, so what
  // comes from a lower level waits for it with all micro-batches of the step.
  void find_levels(const std::vector<int>& writer) {
    level_.resize(plan_.actors.size());
    for (bool more = true; more;) {  // as often as there are levels, and once more
      more = false;
      for (size_t t = 0; t < plan_.tensors.size(); ++t) {
        if (state_.root[t] != int(t) || writer[t] < 0) continue;
        auto& item = state_.items[size_t(writer[t])];
        int level = level_[size_t(item.actor)] + accumulated(item);
        for (int reader : readers_[t])
          if (reader != item.actor && level_[size_t(reader)] < level) level_[size_t(reader)] = level, more = true;
      }
    }
  }

  void make_variable(size_t v, const std::vector<int>& writer) {
    int value = state_.variable_value[v], next = state_.variable_next[v];
    PlanRegister reg{.name = state_.graph().variables[v].name, .cls = plan_.tensors[size_t(value)].cls};
    reg.variable = reg.name;
    reg.slots = next < 0 ? 1 : state_.variables[v].staleness + 1;
    reg.initial = reg.slots;
    reg.bytes = plan_.tensors[size_t(value)].bytes;
    reg.producer = next < 0 ? -1 : state_.items[size_t(writer[size_t(next)])].actor;
    int id = int(plan_.registers.size());
    for (int t : {value, next})
      if (t >= 0) {
        plan_.tensors[size_t(t)].reg = id;
        reg.tensors.push_back(t);
      }
    plan_.registers.push_back(std::move(reg));
  }

  // A tensor that leaves its actor goes into a register with all others that go to the same actors.
  void make_for(int tensor, int writer) {
    auto& item = state_.items[size_t(writer)];
    std::set<int> to = readers_[size_t(tensor)];
    to.erase(item.actor);
    bool outside = item.kind != Item::Kind::op;  // sources, feeds and hops always write registers
    if (to.empty() && !outside) return;
    bool accumulates = accumulated(item);
    auto [at, fresh] = groups_.emplace(std::tuple(item.actor, to, accumulates), int(plan_.registers.size()));
    if (fresh) {
      PlanRegister reg{.name = plan_.tensors[size_t(tensor)].name, .cls = item.cls};
      reg.producer = item.actor;
      reg.slots = slots(item, to, accumulates);
      plan_.registers.push_back(std::move(reg));
      if (accumulates) sums_.insert(at->second);
    }
    auto& reg = plan_.registers[size_t(at->second)];
    plan_.tensors[size_t(tensor)].reg = at->second;
    plan_.tensors[size_t(tensor)].offset = reg.bytes;
    reg.bytes += plan_.tensors[size_t(tensor)].bytes;
    reg.tensors.push_back(tensor);
  }

  // Credits. What forward leaves for backward is held by S - s micro-batches in stage s: that is 1F1B. What comes from
  // outside is prefetched by one.
  int slots(const Item& item, const std::set<int>& to, bool accumulates) const {
    bool outside = item.kind == Item::Kind::source || item.kind == Item::Kind::feed;
    if (state_.micro_batches == 1 || !item.micro || accumulates) return outside ? 2 : 1;
    auto& producer = plan_.actors[size_t(item.actor)];
    bool stashed = producer.phase == Phase::forward && std::any_of(to.begin(), to.end(), [&](int a) {
                     return plan_.actors[size_t(a)].phase == Phase::backward;
                   });
    int alive = state_.stages - (item.cls < state_.stages ? plan_.classes[size_t(item.cls)].stage : 0);
    if (state_.config.schedule.value == "gpipe") alive = state_.micro_batches;
    alive = std::min(alive, state_.micro_batches);
    if (std::any_of(to.begin(), to.end(), [&](int a) { return level_[size_t(a)] > level_[size_t(item.actor)]; }))
      return state_.micro_batches;
    if (outside) return alive + 1;
    if (stashed) return alive;
    return producer.phase == Phase::forward && state_.stages > 1 ? 2 : 1;
  }

  int tokens_a_step(const PlanRegister& reg, int id) const {
    if (!reg.variable.empty() || sums_.count(id)) return 1;
    return plan_.actors[size_t(reg.producer)].firings;
  }

  void make_ports() {
    for (size_t r = 0; r < plan_.registers.size(); ++r) {
      auto& reg = plan_.registers[r];
      if (reg.producer < 0) continue;
      int tokens = tokens_a_step(reg, int(r));
      auto& producer = plan_.actors[size_t(reg.producer)];
      producer.out.push_back({int(r), producer.firings / tokens});
      std::set<int> to;
      for (int t : reg.tensors) to.insert(readers_[size_t(t)].begin(), readers_[size_t(t)].end());
      to.erase(reg.producer);
      for (int a : to) plan_.actors[size_t(a)].in.push_back({int(r), plan_.actors[size_t(a)].firings / tokens});
    }
  }

  PlanState& state_;
  Plan& plan_;
  std::vector<std::set<int>> readers_;  // by root tensor: actors
  std::vector<int> level_;              // by actor
  std::map<std::tuple<int, std::set<int>, bool>, int> groups_;
  std::set<int> sums_;  // registers of accumulated values: one token a step from a producer that fires more often
};

}  // namespace

static void run(PlanState& state) { Registers(state).run(); }

extern constinit const PassDef registers{
    .name = "registers",
    .doc =
        "Puts what passes between actors into registers and gives each its slots: S - s for what stage s keeps for "
        "backward (1F1B), 1 + staleness for variables, 2 for what comes from outside, all micro-batches where the "
        "reader waits for a sum "
        "over the step, else 1.",
    .run = run,
};

}  // namespace sluice::passes
