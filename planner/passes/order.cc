// SPDX-License-Identifier: Apache-2.0
#include <queue>

#include "planner/items.h"

namespace sluice::passes {

// The model's own order, but an update comes as soon as its gradient is there and the old value is no longer read:
// the gradient is still in cache and its memory is free again.
static void run(PlanState& state) {
  auto needs = dependencies_of(state);
  std::vector<std::vector<int>> users(state.items.size());
  std::vector<size_t> waiting(state.items.size());
  auto rank = [&](int i) {
    auto& item = state.items[size_t(i)];
    return std::pair(item.phase != Phase::optimizer, i);
  };
  auto later = [&](int a, int b) { return rank(a) > rank(b); };
  std::priority_queue<int, std::vector<int>, decltype(later)> ready(later);
  for (size_t i = 0; i < needs.size(); ++i) {
    waiting[i] = needs[i].size();
    for (int n : needs[i]) users[size_t(n)].push_back(int(i));
    if (waiting[i] == 0) ready.push(int(i));
  }
  std::vector<Item> sorted;
  while (!ready.empty()) {
    int i = ready.top();
    ready.pop();
    for (int user : users[size_t(i)])
      if (--waiting[size_t(user)] == 0) ready.push(user);
    sorted.push_back(std::move(state.items[size_t(i)]));
  }
  check(sorted.size() == needs.size(), "the items of a plan have an order");
  state.items = std::move(sorted);
}

extern constinit const PassDef order{
    .name = "order",
    .doc = "One order of all items that respects data, and the old value of a variable before its update.",
    .run = run,
};

}  // namespace sluice::passes
