// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "planner/items.h"

namespace sluice::passes {
namespace {

constexpr std::string_view phase_names[] = {"forward", "backward", "optimizer"};

// Depth: how many actor borders lie before an item. Ops of one class and rate at one depth form a chain: no edge
// between two chains goes back, so a chain never waits for what itself must make first.
void find_depths(PlanState& state) {
  auto needs = dependencies_of(state);
  for (size_t i = 0; i < state.items.size(); ++i) {
    auto& item = state.items[i];
    for (int n : needs[i]) {
      auto& before = state.items[size_t(n)];
      bool joins = item.kind == Item::Kind::op && before.kind == Item::Kind::op && before.cls == item.cls &&
                   before.micro == item.micro && state.config.coalesce.value;
      item.depth = std::max(item.depth, before.depth + (joins ? 0 : 1));
    }
  }
}

// Ops that wait for nothing (a constant, a weight seen transposed) go to the chain of their first reader: alone they
// would be an actor of their own.
void sink_free_ops(PlanState& state) {
  if (!state.config.coalesce.value) return;
  auto needs = dependencies_of(state);
  std::vector<bool> free(state.items.size());
  std::vector<int> latest(state.items.size(), -1);
  for (size_t i = 0; i < state.items.size(); ++i)
    free[i] = state.items[i].kind == Item::Kind::op &&
              std::all_of(needs[i].begin(), needs[i].end(), [&](int n) { return free[size_t(n)]; });
  for (size_t i = state.items.size(); i-- > 0;) {
    auto& item = state.items[i];
    if (free[i] && latest[i] > item.depth) item.depth = latest[i];
    for (int n : needs[i]) {
      auto& before = state.items[size_t(n)];
      bool joins = item.kind == Item::Kind::op && before.cls == item.cls && before.micro == item.micro;
      int bound = item.depth - (joins ? 0 : 1);
      latest[size_t(n)] = latest[size_t(n)] < 0 ? bound : std::min(latest[size_t(n)], bound);
    }
  }
}

// Items that share an actor have equal keys.
using Key = std::tuple<int, int, bool, int, int, int>;
Key key_of(const PlanState& state, size_t i) {
  auto& item = state.items[i];
  bool alone = item.kind == Item::Kind::op ? !state.config.coalesce.value : item.kind != Item::Kind::hop;
  // Hops of one depth, phase and pair of classes travel together: one actor, one message a peer.
  int from = item.kind == Item::Kind::hop ? state.plan.tensors[size_t(item.in[0])].cls : -1;
  int phase = item.kind == Item::Kind::hop ? int(item.phase) : 0;
  return {int(item.kind), item.cls, item.micro, item.depth, from * 4 + phase, alone ? int(i) : -1};
}

std::string kind_name(Item::Kind kind) {
  switch (kind) {
    case Item::Kind::op: return "compute";
    case Item::Kind::hop: return "move";
    case Item::Kind::source: return "source";
    case Item::Kind::feed: return "feed";
    case Item::Kind::sink: return "sink";
  }
  return "";
}

PlanActor make_actor(const PlanState& state, const Item& item) {
  PlanActor actor;
  actor.kind = kind_name(item.kind);
  actor.cls = item.cls;
  actor.stream = item.stream;
  actor.firings = item.micro ? state.micro_batches : 1;
  actor.phase = item.phase;
  actor.source = item.source;
  return actor;
}

std::string actor_name(const PlanState& state, const PlanActor& actor, const Item& first, size_t items, int number) {
  std::string base;
  if (items == 1)
    base = first.name;
  else
    base = fmt::format("{}_{}", actor.kind == "compute" ? phase_names[size_t(actor.phase)] : actor.kind, number);
  auto at = fmt::format("@{}", state.plan.classes[size_t(actor.cls)].name);
  return base.find('@') == base.npos ? base + at : base;
}

void append(PlanState& state, PlanActor& actor, Item& item) {
  if (item.kind == Item::Kind::op) {
    auto& node = state.graph().nodes[size_t(item.node)];
    actor.ops.push_back(
        {.op = node.op, .name = node.name, .attrs = node.attrs, .in = item.in, .out = item.out, .place = node.place});
  } else if (item.kind == Item::Kind::hop) {
    actor.moves.push_back({item.move, item.in[0], item.out[0]});
  } else {
    actor.names = item.names;
    actor.tensors = item.kind == Item::Kind::sink ? item.in : item.out;
  }
  // A chain that holds backward work runs with its priority; an update waits behind both.
  if (item.phase == Phase::backward || actor.phase == Phase::optimizer) actor.phase = item.phase;
}

}  // namespace

static void run(PlanState& state) {
  find_depths(state);
  sink_free_ops(state);
  std::map<Key, int> actor_of;
  std::vector<int> first, count;
  for (size_t i = 0; i < state.items.size(); ++i) {
    auto [at, fresh] = actor_of.emplace(key_of(state, i), int(state.plan.actors.size()));
    if (fresh) {
      state.plan.actors.push_back(make_actor(state, state.items[i]));
      first.push_back(int(i));
      count.push_back(0);
    }
    state.items[i].actor = at->second;
    ++count[size_t(at->second)];
    append(state, state.plan.actors[size_t(at->second)], state.items[i]);
  }
  for (size_t a = 0; a < state.plan.actors.size(); ++a)
    state.plan.actors[a].name =
        actor_name(state, state.plan.actors[a], state.items[size_t(first[a])], size_t(count[a]), int(a));
}

extern constinit const PassDef chains{
    .name = "chains",
    .doc = "Joins ops of one class, rate and depth into chains, and hops that travel together into one move actor.",
    .run = run,
};

}  // namespace sluice::passes
