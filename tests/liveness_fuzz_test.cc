// SPDX-License-Identifier: Apache-2.0
// Random graphs of actors with random credits, rates, feedback and delays: none stalls that the verifier accepts, and
// those it refuses are shown to stall, in simulated time and on the floor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "actors/floor.h"
#include "plan/verify.h"
#include "protocol/simulate.h"

namespace sluice {
namespace {

// Real delays on the floor: now and then the thread gives way.
void give_way(const Call& call) {
  if (philox({uint32_t(call.op_key), uint32_t(call.step), uint32_t(call.micro_batch), 0}, 1, 2)[0] % 8 == 0)
    std::this_thread::yield();
}
constexpr OpDef give_way_op{.name = "give_way", .cpu = give_way};

class Graph {
 public:
  explicit Graph(uint64_t seed) : random_(seed) {
    int micro = 1 + int(random_() % 4);
    plan_.micro_batches = micro;
    PlanClass cls;
    cls.name = "c";
    cls.mesh = {"c", {{"x", 1}}, 0};
    cls.streams.resize(1 + random_() % 3);
    for (auto& stream : cls.streams) stream.name = "s";
    plan_.classes.push_back(cls);
    int actors = 2 + int(random_() % 9);
    for (int a = 0; a < actors; ++a) add_actor(a, random_() % 2 ? micro : 1);
    for (int edges = int(random_() % uint64_t(2 * actors)); edges > 0; --edges) add_edge(actors);
    plan_.classes[0].arena_bytes = arena_;
  }
  Plan plan() const { return plan_; }

 private:
  void add_actor(int index, int firings) {
    PlanActor actor;
    actor.name = "a" + std::to_string(index);
    actor.kind = index == 0 ? "source" : "compute";
    actor.firings = firings;
    actor.stream = int(random_() % plan_.classes[0].streams.size());
    actor.key = int64_t(random_() % 5);
    if (index > 0) actor.ops.push_back({"give_way", actor.name, {}, {}, {}});
    plan_.actors.push_back(actor);
    if (index > 0) join(int(random_() % uint64_t(index)), index, 0);
  }

  // Mostly forward; backward edges are feedback, with tokens on most of them.
  void add_edge(int actors) {
    int from = int(random_() % uint64_t(actors)), to = int(random_() % uint64_t(actors));
    if (from == to) return;
    bool back = from > to;
    if (back && (to == 0 || random_() % 2)) return;
    join(from, to, back && random_() % 8 ? 1 + int(random_() % 4) : 0);
  }

  void join(int from, int to, int initial) {
    auto& producer = plan_.actors[size_t(from)];
    auto& consumer = plan_.actors[size_t(to)];
    int most = producer.firings == consumer.firings ? producer.firings : 1;
    int tokens = random_() % 2 ? most : 1;
    PlanRegister reg;
    reg.name = "r" + std::to_string(plan_.registers.size());
    reg.slots = std::max(initial, 1 + int(random_() % 4));
    reg.initial = initial;
    reg.bytes = 64;
    reg.offset = arena_;
    reg.producer = from;
    arena_ += reg.bytes * reg.slots;
    producer.out.push_back({int(plan_.registers.size()), producer.firings / tokens});
    consumer.in.push_back({int(plan_.registers.size()), consumer.firings / tokens});
    plan_.registers.push_back(reg);
  }

  std::mt19937_64 random_;
  Plan plan_;
  int64_t arena_ = 0;
};

bool accepted(const Plan& plan) {
  try {
    verify_liveness(plan);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void run_on_floor(const Plan& plan, bool inline_drive) {
  static const OpTable ops({&give_way_op});
  FloorOptions options;
  options.inline_drive = inline_drive;
  options.workers = 2;
  Floor floor(plan, {ops, builtin_moves(), builtin_kinds(), builtin_devices(), builtin_readers()}, options);
  floor.grant(5);
  floor.drain();
  RunStats stats = floor.stats();
  for (auto& actor : plan.actors) ASSERT_EQ(stats.fired[actor.name], 5 * actor.firings) << actor.name;
  for (auto& reg : plan.registers) ASSERT_LE(stats.alive_max[reg.name], reg.slots) << reg.name;
}

constexpr uint64_t graphs = 1000;

TEST(LivenessFuzz, NoAcceptedGraphStallsAndEveryRefusedOneDoes) {
  int live = 0, stalled = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    Plan plan = Graph(seed).plan();
    verify_rates(plan);
    Simulated simulated = simulate(plan, builtin_kinds(), {.steps = 5, .seed = seed});
    if (accepted(plan)) {
      ++live;
      ASSERT_TRUE(simulated.done) << "seed " << seed << "\n" << simulated.stall << text_of(plan);
      ASSERT_TRUE(simulated.empty) << "seed " << seed;
      run_on_floor(plan, true);
      if (seed % 4 == 0) run_on_floor(plan, false);
    } else {
      ++stalled;
      ASSERT_FALSE(simulated.done) << "seed " << seed << "\n" << text_of(plan);
      EXPECT_THAT(simulated.stall, testing::HasSubstr("a cycle")) << "seed " << seed;
      EXPECT_THROW(run_on_floor(plan, true), Error) << "seed " << seed;
    }
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(live, 600);
  EXPECT_GT(stalled, 50);
}

}  // namespace
}  // namespace sluice
