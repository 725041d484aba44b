// SPDX-License-Identifier: Apache-2.0
// verify_liveness against a simulation that knows slots, not formulas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "base/error.h"
#include "plan/samples.h"
#include "plan/verify.h"

namespace sluice {
namespace {

using samples::Random;

Plan empty_plan() {
  Plan plan{.job = "tokens"};
  plan.classes = {{"main", {"main", {}, 0}, "", {{"compute", 0, 0}}, 0, 0, 0}};
  return plan;
}

int add_actor(Plan& plan, std::string name, int firings = 1) {
  plan.actors.push_back({.name = std::move(name), .kind = "compute", .firings = firings});
  return int(plan.actors.size()) - 1;
}

int add_register(Plan& plan, std::string name, int producer, int slots, int initial = 0, int period = 1) {
  plan.registers.push_back({.name = std::move(name), .slots = slots, .initial = initial, .producer = producer});
  plan.actors[size_t(producer)].out.push_back({int(plan.registers.size()) - 1, period});
  return int(plan.registers.size()) - 1;
}

void read(Plan& plan, int actor, int reg, int period = 1) { plan.actors[size_t(actor)].in.push_back({reg, period}); }

std::string stall_of(const Plan& plan) {
  try {
    verify_liveness(plan);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::failed);
    return error.message();
  }
  return "";
}

// ---- the simulation: each slot is free, being filled, or full with the readers that still hold or want it
// -----------------

class Simulation {
 public:
  Simulation(const Plan& plan, Random& random) : plan_(plan), random_(random), regs_(plan.registers.size()) {
    for (size_t r = 0; r < regs_.size(); ++r) {
      for (size_t a = 0; a < plan.actors.size(); ++a)
        for (auto& port : plan.actors[a].in)
          if (port.reg == int(r)) regs_[r].readers.push_back(int(a));
      regs_[r].free = plan.registers[r].slots;
      for (int i = 0; i < plan.registers[r].initial; ++i) {
        --regs_[r].free;
        publish(int(r));
      }
    }
    fired_.resize(plan.actors.size());
  }

  // Fires actors in a random order for `steps` steps; whether all of them did their firings.
  bool run(int steps) {
    for (;;) {
      std::vector<int> ready;
      for (size_t a = 0; a < fired_.size(); ++a)
        if (fired_[a] < steps * plan_.actors[a].firings && can_fire(int(a))) ready.push_back(int(a));
      if (ready.empty()) break;
      fire(ready[random_() % ready.size()]);
    }
    for (size_t a = 0; a < fired_.size(); ++a)
      if (fired_[a] < steps * plan_.actors[a].firings) return false;
    return true;
  }

 private:
  struct Token {
    std::vector<int> readers;  // that have not finished with it
  };
  struct Reg {
    int free = 0;
    std::vector<int> readers;
    std::deque<Token> full;
  };

  void publish(int r) {
    auto& reg = regs_[size_t(r)];
    if (reg.readers.empty())
      ++reg.free;
    else
      reg.full.push_back({reg.readers});
  }
  Token* oldest(int a, int r) {
    for (auto& token : regs_[size_t(r)].full)
      if (std::count(token.readers.begin(), token.readers.end(), a)) return &token;
    return nullptr;
  }
  bool first_of(int a, const Port& port) const { return fired_[size_t(a)] % port.period == 0; }
  bool last_of(int a, const Port& port) const { return (fired_[size_t(a)] + 1) % port.period == 0; }

  bool can_fire(int a) {
    auto& actor = plan_.actors[size_t(a)];
    for (auto& port : actor.in)
      if (!oldest(a, port.reg)) return false;
    for (auto& port : actor.out)
      if (first_of(a, port) && regs_[size_t(port.reg)].free == 0) return false;
    return true;
  }

  void fire(int a) {
    auto& actor = plan_.actors[size_t(a)];
    for (auto& port : actor.out)
      if (first_of(a, port)) --regs_[size_t(port.reg)].free;
    for (auto& port : actor.in)
      if (last_of(a, port)) std::erase(oldest(a, port.reg)->readers, a);
    for (auto& reg : regs_)
      while (!reg.full.empty() && reg.full.front().readers.empty()) {
        reg.full.pop_front();
        ++reg.free;
      }
    for (auto& port : actor.out)
      if (last_of(a, port)) publish(port.reg);
    ++fired_[size_t(a)];
  }

  const Plan& plan_;
  Random& random_;
  std::vector<Reg> regs_;
  std::vector<int> fired_;
};

// A random graph with balanced rates: forward edges, some edges back, few slots, tokens here and there.
Plan random_graph(Random& random) {
  Plan plan = empty_plan();
  int n = 2 + samples::below(random, 6), micro = 1 + samples::below(random, 4);
  for (int a = 0; a < n; ++a) add_actor(plan, "a" + std::to_string(a), random() % 2 ? micro : 1);
  int edges = n + samples::below(random, size_t(n));
  for (int e = 0; e < edges; ++e) {
    int from = samples::below(random, size_t(n)), to = samples::below(random, size_t(n));
    if (from > to && random() % 3) std::swap(from, to);
    int slots = 1 + samples::below(random, 3);
    int made = plan.actors[size_t(from)].firings, taken = plan.actors[size_t(to)].firings;
    bool each = made == taken && random() % 2;
    bool back = from >= to;
    int reg = add_register(plan, "r" + std::to_string(e), from, slots,
                           back || random() % 4 == 0 ? samples::below(random, size_t(slots) + 1) : 0, each ? 1 : made);
    if (from != to) read(plan, to, reg, each ? 1 : taken);
    for (int other = 0; other < n; ++other)
      if (other != from && other != to && random() % 6 == 0) {
        int firings = plan.actors[size_t(other)].firings;
        if (!each)
          read(plan, other, reg, firings);
        else if (firings == made)
          read(plan, other, reg, 1);
      }
  }
  return plan;
}

TEST(Liveness, TheVerdictIsThatOfASimulation) {
  Random random(11);
  int live = 0;
  for (int trial = 0; trial < 1'000; ++trial) {
    Plan plan = random_graph(random);
    bool verdict = stall_of(plan).empty();
    live += verdict;
    for (int order = 0; order < 2; ++order)
      ASSERT_EQ(verdict, Simulation(plan, random).run(2 + 5 * order)) << text_of(plan) << stall_of(plan);
  }
  EXPECT_GT(live, 200);
  EXPECT_LT(live, 800);
}

TEST(Liveness, NamesTheCycleOfFullSlots) {
  Plan plan = empty_plan();
  int a = add_actor(plan, "forward"), b = add_actor(plan, "back ward"), c = add_actor(plan, "outside");
  read(plan, b, add_register(plan, "h", a, 2));
  read(plan, a, add_register(plan, "g", b, 2));
  read(plan, c, add_register(plan, "y", b, 1));
  EXPECT_EQ(
      stall_of(plan),
      "liveness: the plan stalls: actor forward waits for a full slot of register g from actor \"back ward\" (0 of 2); "
      "\"back ward\" waits for a full slot of register h from actor forward (0 of 2)");
  plan.registers[1].initial = 1;
  EXPECT_EQ(stall_of(plan), "");
}

// The reader of two paths needs the short path's token to wait in a slot: one slot is one too few.
TEST(Liveness, NamesTheCycleOfFreeSlots) {
  Plan plan = empty_plan();
  int source = add_actor(plan, "source", 4), sum = add_actor(plan, "sum", 4), join = add_actor(plan, "join", 4);
  int rows = add_register(plan, "rows", source, 1);
  read(plan, sum, rows);
  int total = add_register(plan, "total", sum, 1, 0, 4);
  read(plan, join, total, 4);
  read(plan, join, rows);
  EXPECT_EQ(
      stall_of(plan),
      "liveness: the plan stalls: actor source waits for a free slot of register rows, which actor join has not "
      "finished with (1 of 1 in use); join waits for a full slot of register total from actor sum (0 of 1); sum waits "
      "for a full slot of register rows from actor source (0 of 1)");
  plan.registers[size_t(rows)].slots = 4;
  EXPECT_EQ(stall_of(plan), "");
}

// A training step: weights that start full, read over all micro-batches, updated in place once a step.
TEST(Liveness, AVariableIsARegisterThatStartsFull) {
  for (int staleness : {0, 1, 4}) {
    Plan plan = empty_plan();
    int forward = add_actor(plan, "forward", 4), update = add_actor(plan, "update");
    int grad = add_register(plan, "grad", forward, 1, 0, 4);
    read(plan, update, grad);
    int weight = add_register(plan, "weight", update, staleness + 1, staleness + 1);
    read(plan, forward, weight, 4);
    add_register(plan, "momentum", update, 1, 1);  // read by its own producer only
    EXPECT_EQ(stall_of(plan), "");
    plan.registers[size_t(weight)].initial = 0;
    EXPECT_THAT(stall_of(plan), testing::HasSubstr("waits for a full slot of register weight from actor update"));
  }
}

TEST(Liveness, RatesThatDoNotBalanceAreRefusedBefore) {
  auto why = [](auto build) {
    Plan plan = empty_plan();
    build(plan);
    try {
      verify_rates(plan);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  using testing::HasSubstr;
  EXPECT_THAT(why([](Plan& p) {
                int a = add_actor(p, "a", 4), b = add_actor(p, "b", 2);
                read(p, b, add_register(p, "r", a, 1));
              }),
              HasSubstr("the actor b and the register r: it takes 2 tokens a step, but a makes 4"));
  EXPECT_THAT(why([](Plan& p) { add_register(p, "r", add_actor(p, "a", 4), 1, 0, 3); }),
              HasSubstr("fires 4 times a step, no multiple of the port's period 3"));
  EXPECT_THAT(why([](Plan& p) {
                int a = add_actor(p, "a");
                read(p, a, add_register(p, "r", a, 1));
              }),
              HasSubstr("has an in-port for what it produces itself"));
  EXPECT_THAT(why([](Plan& p) {
                int a = add_actor(p, "a");
                p.registers.push_back({.name = "r"});
                read(p, a, 0);
              }),
              HasSubstr("has an in-port for a constant"));
  EXPECT_THAT(why([](Plan& p) {
                int a = add_actor(p, "a"), b = add_actor(p, "b");
                int r = add_register(p, "r", a, 1);
                read(p, b, r);
                read(p, b, r);
              }),
              HasSubstr("has two ports"));
  EXPECT_THAT(why([](Plan& p) {
                int a = add_actor(p, "a"), b = add_actor(p, "b");
                int r = add_register(p, "r", a, 1);
                p.registers[size_t(r)].producer = b;
              }),
              HasSubstr("has an out-port for it but is not its producer"));
  EXPECT_THAT(why([](Plan& p) {
                add_register(p, "r", add_actor(p, "a"), 1);
                p.actors[0].out.clear();
              }),
              HasSubstr("is named as its producer but has no out-port"));
}

// Ports that contradict each other are a matter of rates, and never a crash.
TEST(Liveness, AnyStructureEnds) {
  Random random(12);
  int played = 0;
  for (int trial = 0; trial < 2'000; ++trial) {
    Plan plan = samples::any_plan(random);
    try {
      verify_liveness(plan);
      ++played;
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), testing::AnyOf(testing::HasSubstr("rates: "), testing::HasSubstr("stalls: actor ")));
    }
  }
  EXPECT_GT(played, 10);
}

}  // namespace
}  // namespace sluice
