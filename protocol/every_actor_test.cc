// SPDX-License-Identifier: Apache-2.0
// Every kind of actor, under simulated time with random delays: it never exceeds its credits and tokens arrive once
// and in order (both checked by the simulation), it always drains and leaves every register as it found it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "protocol/actor.h"
#include "protocol/register.h"
#include "protocol/simulate.h"

namespace sluice {
namespace {

int add_register(Plan& plan, int producer, int slots) {
  PlanRegister reg;
  reg.name = "r" + std::to_string(plan.registers.size());
  reg.producer = producer;
  reg.slots = slots;
  plan.registers.push_back(reg);
  return int(plan.registers.size()) - 1;
}

int add_actor(Plan& plan, std::string_view kind, int firings) {
  PlanActor actor;
  actor.name = std::string(kind) + std::to_string(plan.actors.size());
  actor.kind = kind;
  actor.firings = firings;
  plan.actors.push_back(actor);
  return int(plan.actors.size()) - 1;
}

void join(Plan& plan, int from, int to, int tokens, int slots) {
  int reg = add_register(plan, from, slots);
  plan.actors[size_t(from)].out.push_back({reg, plan.actors[size_t(from)].firings / tokens});
  plan.actors[size_t(to)].in.push_back({reg, plan.actors[size_t(to)].firings / tokens});
}

// The kind under test between what it needs: producers of every rate before it, consumers of every rate after it, and a
// variable that it updates while others read it.
Plan plan_around(const ActorDef& kind, std::mt19937_64& random) {
  Plan plan;
  plan.micro_batches = 4;
  auto slots = [&] { return 1 + int(random() % 3); };
  auto firings = [&] { return random() % 2 ? 4 : 1; };
  int tested = add_actor(plan, kind.name, firings());
  auto tokens = [&](int other) {
    return plan.actors[size_t(other)].firings == plan.actors[0].firings ? plan.actors[0].firings : 1;
  };
  for (int n = kind.gated ? 0 : 1 + int(random() % 3); n > 0; --n) {
    int source = add_actor(plan, "source", firings());
    join(plan, source, tested, tokens(source), slots());
  }
  if (kind.name == "sink") return plan;
  for (int n = int(random() % 3); n > 0; --n) {
    int after = add_actor(plan, "compute", firings());
    join(plan, tested, after, tokens(after), slots());
    int sink = add_actor(plan, "sink", plan.actors[size_t(after)].firings);
    join(plan, after, sink, plan.actors[size_t(after)].firings, slots());
  }
  int variable = add_register(plan, tested, slots());
  plan.registers[size_t(variable)].initial = plan.registers[size_t(variable)].slots;
  plan.actors[0].out.push_back({variable, plan.actors[0].firings});
  int reader = add_actor(plan, "compute", firings());
  plan.actors[size_t(reader)].in.push_back({variable, plan.actors[size_t(reader)].firings});
  return plan;
}

class EveryKind : public testing::TestWithParam<const ActorDef*> {};
INSTANTIATE_TEST_SUITE_P(Builtin, EveryKind, testing::ValuesIn(builtin_kinds().begin(), builtin_kinds().end()),
                         [](auto& info) { return std::string(info.param->name); });

TEST_P(EveryKind, IsNamedAndDocumented) {
  EXPECT_FALSE(GetParam()->doc.empty());
  EXPECT_EQ(&kind_of(builtin_kinds(), GetParam()->name), GetParam());
}

TEST_P(EveryKind, AlwaysDrainsUnderRandomDelays) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    Plan plan = plan_around(*GetParam(), random);
    Simulated simulated = simulate(plan, builtin_kinds(), {.steps = 7, .seed = seed});
    ASSERT_TRUE(simulated.done) << "seed " << seed << "\n" << simulated.stall;
    ASSERT_TRUE(simulated.empty) << "seed " << seed;
    for (auto& reg : plan.registers) ASSERT_LE(simulated.full_max[reg.name], uint32_t(reg.slots));
  }
}

TEST_P(EveryKind, FiresWhenAllIsThereAndNotBefore) {
  std::vector<InPort> in(3);
  std::vector<OutPort> out(2);
  for (auto& port : in) port.slots = 2;
  out[1].credits = 0;
  ActorState state{in, out};
  settle(state);
  auto& kind = *GetParam();
  EXPECT_FALSE(kind.on_input(state, 0, 1));
  EXPECT_FALSE(kind.on_input(state, 2, 2));
  EXPECT_FALSE(kind.on_input(state, 0, 1));
  EXPECT_FALSE(kind.on_credit(state, 1));
  EXPECT_TRUE(kind.on_input(state, 1, 1));
  std::vector<uint32_t> events;
  begin_firing(state, [&](uint32_t port) { events.push_back(port); });
  end_firing(
      state, [&](uint32_t port) { events.push_back(10 + port); }, [&](uint32_t port) { events.push_back(20 + port); });
  EXPECT_THAT(events, testing::ElementsAre(0, 1, 10, 11, 12, 20, 21));
  EXPECT_FALSE(state.ready());
}

TEST_P(EveryKind, StopsForGoodAndGivesUpWhatIsNotBegun) {
  std::vector<InPort> in(1);
  in[0] = {4, 4, 9, unbounded_slots};
  ActorState state{in, {}};
  settle(state);
  auto fire = [&] {
    begin_firing(state, [](uint32_t) {});
    end_firing(
        state, [](uint32_t) {}, [](uint32_t) {});
  };
  fire();
  GetParam()->on_stop(state);
  EXPECT_FALSE(state.ready());
  EXPECT_FALSE(GetParam()->on_input(state, 0, 1));
  EXPECT_FALSE(state.ready());
  EXPECT_EQ(in[0].tokens, GetParam()->gated ? 2u : 10u);  // the step begun and the one just granted
}

TEST_P(EveryKind, RefusesMoreThanItsCredits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<InPort> in(1);
  std::vector<OutPort> out(1);
  ActorState state{in, out};
  settle(state);
  GetParam()->on_input(state, 0, 1);
  EXPECT_DEATH(GetParam()->on_input(state, 0, 1), "more tokens");
  EXPECT_DEATH(GetParam()->on_credit(state, 0), "more credits");
}

TEST(Register, SlotsGoRoundAndComeBackInOrder) {
  RegisterState reg(3, 2, 0);
  bool free_now = true;
  for (uint32_t token = 0; token < 3; ++token) {
    EXPECT_EQ(reg.acquire(), token);
    EXPECT_EQ(reg.publish(free_now), token);
    EXPECT_FALSE(free_now);
  }
  EXPECT_EQ(reg.full(), 3u);
  EXPECT_FALSE(reg.give_back(0));
  EXPECT_FALSE(reg.give_back(1));
  EXPECT_TRUE(reg.give_back(0));
  EXPECT_EQ(reg.acquire(), 0u);
  EXPECT_EQ(reg.last(), 2u);
  EXPECT_EQ(reg.full_max(), 3u);
}

TEST(Register, AVariableStartsFullAndItsLastSlotIsTheNewest) {
  RegisterState reg(3, 1, 3);
  EXPECT_EQ(reg.credits(), 0u);
  EXPECT_EQ(reg.last(), 2u);
  EXPECT_EQ(reg.next(), 0u);
  RegisterState unread(2, 0, 2);
  EXPECT_EQ(unread.credits(), 2u);
}

TEST(Register, MisuseStopsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  RegisterState reg(1, 1, 0);
  bool free_now = false;
  EXPECT_DEATH(reg.publish(free_now), "not acquired");
  EXPECT_DEATH(reg.give_back(0), "did not hold");
  reg.acquire();
  EXPECT_DEATH(reg.acquire(), "still holds");
  reg.publish(free_now);
  EXPECT_DEATH(reg.acquire(), "still holds");
}

// A cycle without a token stalls, and the report names it; with a token it runs.
TEST(Simulate, AStallNamesItsCycle) {
  Plan plan;
  int source = add_actor(plan, "source", 1), a = add_actor(plan, "compute", 1), b = add_actor(plan, "compute", 1);
  join(plan, source, a, 1, 1);
  join(plan, a, b, 1, 1);
  join(plan, b, a, 1, 1);
  Simulated stalled = simulate(plan, builtin_kinds(), {});
  EXPECT_FALSE(stalled.done);
  EXPECT_THAT(stalled.stall,
              testing::HasSubstr("actor 'compute1' waits for a full slot of 'r2' from actor 'compute2'"));
  EXPECT_THAT(stalled.stall, testing::HasSubstr("a cycle"));
  plan.registers[2].initial = 1;
  EXPECT_TRUE(simulate(plan, builtin_kinds(), {}).done);
}

}  // namespace
}  // namespace sluice
