// SPDX-License-Identifier: Apache-2.0
#include "planner/elimination.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "base/error.h"

namespace sluice {

int Elimination::add(std::vector<double> cost) {
  check(!cost.empty(), "a decision has at least one choice");
  std::vector<int> index(cost.size());
  std::iota(index.begin(), index.end(), 0);
  original_.push_back(std::move(index));
  unary_.push_back(std::move(cost));
  return int(unary_.size()) - 1;
}

void Elimination::add_pair(int a, int b, const std::vector<double>& cost) {
  check(a != b && cost.size() == choices(a) * choices(b), "a pair's table has an entry for each two choices");
  bool swap = a > b;
  int first = std::min(a, b), second = std::max(a, b);
  auto at = std::find_if(pairs_.begin(), pairs_.end(), [&](auto& f) { return f.scope == std::vector{first, second}; });
  if (at == pairs_.end()) {
    pairs_.push_back({{first, second}, std::vector<double>(cost.size(), 0)});
    at = pairs_.end() - 1;
  }
  for (size_t i = 0; i < choices(a); ++i)
    for (size_t j = 0; j < choices(b); ++j)
      at->table[swap ? j * choices(a) + i : i * choices(b) + j] += cost[i * choices(b) + j];
}

// Goldstein: whatever the neighbours choose, `better` costs less (or as much, with a smaller index) than `worse`.
bool Elimination::dominated(int d, size_t worse, size_t better) const {
  double gain = unary_[size_t(d)][worse] - unary_[size_t(d)][better];
  for (auto& pair : pairs_) {
    bool first = pair.scope[0] == d;
    if (!first && pair.scope[1] != d) continue;
    size_t others = choices(pair.scope[first ? 1 : 0]), mine = choices(d);
    double least = std::numeric_limits<double>::infinity();
    for (size_t o = 0; o < others; ++o) {
      double w = pair.table[first ? worse * others + o : o * mine + worse];
      double b = pair.table[first ? better * others + o : o * mine + better];
      least = std::min(least, w - b);
    }
    gain += least;
  }
  return gain > 1e-9 || (gain >= 0 && better < worse);
}

void Elimination::keep(int d, const std::vector<size_t>& kept) {
  for (auto& pair : pairs_) {
    bool first = pair.scope[0] == d;
    if (!first && pair.scope[1] != d) continue;
    size_t others = choices(pair.scope[first ? 1 : 0]), mine = choices(d);
    std::vector<double> table;
    if (first) {
      for (size_t k : kept)
        table.insert(table.end(), pair.table.begin() + long(k * others), pair.table.begin() + long((k + 1) * others));
    } else {
      for (size_t o = 0; o < others; ++o)
        for (size_t k : kept) table.push_back(pair.table[o * mine + k]);
    }
    pair.table = std::move(table);
  }
  std::vector<double> cost;
  std::vector<int> index;
  for (size_t k : kept) cost.push_back(unary_[size_t(d)][k]), index.push_back(original_[size_t(d)][k]);
  unary_[size_t(d)] = std::move(cost);
  original_[size_t(d)] = std::move(index);
}

void Elimination::prune() {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t d = 0; d < unary_.size(); ++d) {
      std::vector<bool> dead(choices(int(d)), false);
      for (size_t w = 0; w < dead.size(); ++w)
        for (size_t b = 0; b < dead.size() && !dead[w]; ++b) dead[w] = b != w && !dead[b] && dominated(int(d), w, b);
      std::vector<size_t> kept;
      for (size_t c = 0; c < dead.size(); ++c)
        if (!dead[c]) kept.push_back(c);
      if (kept.size() < dead.size()) {
        keep(int(d), kept);
        changed = true;
      }
    }
  }
}

double Elimination::table_entries(const std::vector<int>& scope) const {
  double n = 1;
  for (int d : scope) n *= double(choices(d));
  return n;
}

std::vector<int> Elimination::neighbours(int d, const std::vector<Factor>& factors) const {
  std::set<int> found;
  for (auto& factor : factors)
    if (std::find(factor.scope.begin(), factor.scope.end(), d) != factor.scope.end())
      found.insert(factor.scope.begin(), factor.scope.end());
  found.erase(d);
  return {found.begin(), found.end()};
}

namespace {

// Walks all assignments of a scope and keeps, for several tables, the index each assignment has in them.
struct Odometer {
  std::vector<size_t> sizes, at;
  std::vector<std::vector<size_t>> strides;  // [table][position in the scope]
  std::vector<size_t> index;                 // [table]

  bool next() {
    for (size_t p = sizes.size(); p-- > 0;) {
      for (size_t t = 0; t < index.size(); ++t) index[t] += strides[t][p];
      if (++at[p] < sizes[p]) return true;
      for (size_t t = 0; t < index.size(); ++t) index[t] -= strides[t][p] * sizes[p];
      at[p] = 0;
    }
    return false;
  }
};

}  // namespace

// Removes a decision: what it would cost at best, and which choice that is, for each choice of its neighbours.
Elimination::Step Elimination::eliminate(int decision, const std::vector<int>& scope, std::vector<Factor>& factors,
                                         Factor& made) const {
  std::vector<Factor> touching, rest;
  for (auto& factor : factors)
    (std::find(factor.scope.begin(), factor.scope.end(), decision) != factor.scope.end() ? touching : rest)
        .push_back(std::move(factor));
  factors = std::move(rest);
  Odometer walk;
  size_t entries = 1;
  for (int d : scope) walk.sizes.push_back(choices(d)), entries *= choices(d);
  walk.at.assign(scope.size(), 0);
  walk.index.assign(touching.size(), 0);
  std::vector<size_t> own;  // stride of the decision in each touching table
  for (auto& factor : touching) {
    std::vector<size_t> stride(scope.size(), 0);
    size_t step = 1, mine = 0;
    for (size_t p = factor.scope.size(); p-- > 0;) {
      if (factor.scope[p] == decision) mine = step;
      for (size_t s = 0; s < scope.size(); ++s)
        if (scope[s] == factor.scope[p]) stride[s] = step;
      step *= choices(factor.scope[p]);
    }
    walk.strides.push_back(stride);
    own.push_back(mine);
  }
  made = {scope, std::vector<double>(entries)};
  Step result{decision, scope, std::vector<uint16_t>(entries)};
  size_t e = 0;
  do {
    double best = std::numeric_limits<double>::infinity();
    for (size_t c = 0; c < choices(decision); ++c) {
      double cost = unary_[size_t(decision)][c];
      for (size_t t = 0; t < touching.size(); ++t) cost += touching[t].table[walk.index[t] + own[t] * c];
      if (cost < best) best = cost, result.best[e] = uint16_t(c);
    }
    made.table[e++] = best;
  } while (walk.next());
  return result;
}

// Too wide to stay exact: half of the widest neighbour's choices, the dearest, are dropped and all begins again.
Elimination::Answer Elimination::solve_narrowed(const std::vector<int>& scope, size_t table_max) {
  int widest = *std::max_element(scope.begin(), scope.end(), [&](int a, int b) { return choices(a) < choices(b); });
  auto& cost = unary_[size_t(widest)];
  std::vector<size_t> kept(cost.size());
  std::iota(kept.begin(), kept.end(), size_t(0));
  std::stable_sort(kept.begin(), kept.end(), [&](size_t a, size_t b) { return cost[a] < cost[b]; });
  kept.resize(std::max<size_t>(1, kept.size() / 2));
  std::sort(kept.begin(), kept.end());
  keep(widest, kept);
  Answer answer = solve(table_max);
  answer.exact = false;
  return answer;
}

Elimination::Answer Elimination::solve(size_t table_max) {
  prune();
  Answer answer;
  std::vector<Factor> factors = pairs_;
  std::vector<Step> steps;
  std::vector<bool> open(unary_.size(), true);
  for (size_t count = 0; count < unary_.size(); ++count) {
    int next = -1;
    double least = 0;
    for (size_t d = 0; d < unary_.size(); ++d) {
      if (!open[d]) continue;
      double entries = table_entries(neighbours(int(d), factors));
      if (next < 0 || entries < least) next = int(d), least = entries;
    }
    auto scope = neighbours(next, factors);
    if (least > double(table_max)) return solve_narrowed(scope, table_max);
    Factor made;
    steps.push_back(eliminate(next, scope, factors, made));
    if (scope.empty())
      answer.cost += made.table[0];
    else
      factors.push_back(std::move(made));
    open[size_t(next)] = false;
  }
  answer.choice.assign(unary_.size(), 0);
  std::vector<size_t> chosen(unary_.size(), 0);
  for (size_t s = steps.size(); s-- > 0;) {
    size_t index = 0;
    for (int d : steps[s].scope) index = index * choices(d) + chosen[size_t(d)];
    chosen[size_t(steps[s].decision)] = steps[s].best[index];
    answer.choice[size_t(steps[s].decision)] = original_[size_t(steps[s].decision)][steps[s].best[index]];
  }
  return answer;
}

}  // namespace sluice
