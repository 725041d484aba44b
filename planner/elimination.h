// SPDX-License-Identifier: Apache-2.0
// Exact minimisation of a sum of costs over discrete choices with pairwise terms: what the SBP solve is.
// First dead-end elimination (Desmet 1992, Goldstein's criterion: exact), then variable elimination in the order of
// least table (bucket elimination, Dechter 1999). Series-parallel graphs, as models mostly are, collapse fully.
// Invariants: choices and terms are given in a fixed order; ties go to the smaller choice, so equal input gives an
// equal answer.
// Thread rule: one thread a problem.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

class Elimination {
 public:
  // A decision with these costs of its choices; returns its index.
  int add(std::vector<double> cost);
  void add_cost(int decision, size_t choice, double cost) { unary_[size_t(decision)][choice] += cost; }
  // cost[i * choices(b) + j] when a takes i and b takes j. Terms of one pair add up.
  void add_pair(int a, int b, const std::vector<double>& cost);

  struct Answer {
    std::vector<int> choice;
    double cost = 0;
    bool exact = true;  // false: a table would have passed table_max entries; the worst choices were dropped first
  };
  Answer solve(size_t table_max = size_t(1) << 22);

 private:
  struct Factor {
    std::vector<int> scope;     // ascending
    std::vector<double> table;  // row-major over the scope's choices
  };
  struct Step {
    int decision = 0;
    std::vector<int> scope;      // of its neighbours when it was eliminated
    std::vector<uint16_t> best;  // by their choices
  };
  Step eliminate(int decision, const std::vector<int>& scope, std::vector<Factor>& factors, Factor& made) const;
  Answer solve_narrowed(const std::vector<int>& scope, size_t table_max);
  size_t choices(int d) const { return unary_[size_t(d)].size(); }
  void prune();
  bool dominated(int d, size_t worse, size_t better) const;
  void keep(int d, const std::vector<size_t>& kept);
  double table_entries(const std::vector<int>& scope) const;
  std::vector<int> neighbours(int d, const std::vector<Factor>& factors) const;

  std::vector<std::vector<double>> unary_;
  std::vector<std::vector<int>> original_;  // choice -> index as given
  std::vector<Factor> pairs_;
};

}  // namespace sluice
