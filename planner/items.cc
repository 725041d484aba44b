// SPDX-License-Identifier: Apache-2.0
#include "planner/items.h"

#include <algorithm>

namespace sluice {

const OpDef& op_of(const PlanState& state, const Item& item) {
  return state.tables.ops.at(state.graph().nodes[size_t(item.node)].op);
}

std::vector<std::vector<int>> readers_of(const PlanState& state) {
  std::vector<std::vector<int>> readers(state.plan.tensors.size());
  for (size_t i = 0; i < state.items.size(); ++i)
    for (int t : state.items[i].in) readers[size_t(t)].push_back(int(i));
  return readers;
}

std::vector<int> writers_of(const PlanState& state) {
  std::vector<int> writer(state.plan.tensors.size(), -1);
  for (size_t i = 0; i < state.items.size(); ++i)
    for (int t : state.items[i].out) writer[size_t(t)] = int(i);
  return writer;
}

std::vector<std::vector<int>> dependencies_of(const PlanState& state) {
  auto writer = writers_of(state);
  auto readers = readers_of(state);
  std::vector<std::vector<int>> needs(state.items.size());
  for (size_t i = 0; i < state.items.size(); ++i)
    for (int t : state.items[i].in)
      if (writer[size_t(t)] >= 0) needs[i].push_back(writer[size_t(t)]);
  for (size_t v = 0; v < state.variable_next.size(); ++v) {
    int next = state.variable_next[v];
    if (next < 0) continue;
    int update = writer[size_t(next)];
    for (size_t t = 0; t < state.root.size(); ++t)
      if (state.root[t] == state.variable_value[v])
        for (int reader : readers[t])
          if (reader != update) needs[size_t(update)].push_back(reader);
  }
  for (auto& list : needs) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return needs;
}

}  // namespace sluice
