// SPDX-License-Identifier: Apache-2.0
#include "planner/elimination.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace sluice {
namespace {

struct Problem {
  std::vector<std::vector<double>> unary;
  std::vector<std::tuple<int, int, std::vector<double>>> pairs;

  double cost(const std::vector<int>& choice) const {
    double sum = 0;
    for (size_t d = 0; d < unary.size(); ++d) sum += unary[d][size_t(choice[d])];
    for (auto& [a, b, table] : pairs)
      sum += table[size_t(choice[size_t(a)]) * unary[size_t(b)].size() + size_t(choice[size_t(b)])];
    return sum;
  }
};

Problem random_problem(std::mt19937& random, int decisions, int pairs) {
  Problem problem;
  auto pick = [&](int n) { return int(random() % unsigned(n)); };
  for (int d = 0; d < decisions; ++d) {
    std::vector<double> cost(size_t(1 + pick(4)));
    for (auto& c : cost) c = pick(20);
    problem.unary.push_back(cost);
  }
  for (int p = 0; p < pairs; ++p) {
    int a = pick(decisions), b = pick(decisions);
    if (a == b) continue;
    std::vector<double> table(problem.unary[size_t(a)].size() * problem.unary[size_t(b)].size());
    for (auto& c : table) c = pick(20);
    problem.pairs.push_back({a, b, table});
  }
  return problem;
}

double brute_force(const Problem& problem) {
  std::vector<int> choice(problem.unary.size(), 0);
  double best = std::numeric_limits<double>::infinity();
  for (;;) {
    best = std::min(best, problem.cost(choice));
    size_t d = 0;
    while (d < choice.size() && ++choice[d] == int(problem.unary[d].size())) choice[d++] = 0;
    if (d == choice.size()) return best;
  }
}

Elimination make(const Problem& problem) {
  Elimination solver;
  for (auto& cost : problem.unary) solver.add(cost);
  for (auto& [a, b, table] : problem.pairs) solver.add_pair(a, b, table);
  return solver;
}

TEST(Elimination, EqualsBruteForceOnRandomGraphs) {
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    auto problem = random_problem(random, 1 + int(random() % 7), int(random() % 14));
    auto answer = make(problem).solve();
    EXPECT_TRUE(answer.exact);
    EXPECT_DOUBLE_EQ(answer.cost, problem.cost(answer.choice));
    EXPECT_DOUBLE_EQ(answer.cost, brute_force(problem)) << "round " << round;
  }
}

TEST(Elimination, EqualInputGivesAnEqualAnswer) {
  std::mt19937 random(2);
  auto problem = random_problem(random, 8, 16);
  EXPECT_EQ(make(problem).solve().choice, make(problem).solve().choice);
}

TEST(Elimination, SaysWhenATableWasTooWide) {
  std::mt19937 random(3);
  Problem problem;
  for (int d = 0; d < 6; ++d) problem.unary.push_back(std::vector<double>(6, 0));
  for (int a = 0; a < 6; ++a)
    for (int b = 0; b < a; ++b) {
      std::vector<double> table(36);
      for (auto& c : table) c = double(random() % 100);
      problem.pairs.push_back({a, b, table});
    }
  auto answer = make(problem).solve(50);
  EXPECT_FALSE(answer.exact);
  EXPECT_DOUBLE_EQ(answer.cost, problem.cost(answer.choice));
}

}  // namespace
}  // namespace sluice
