// SPDX-License-Identifier: Apache-2.0
// A slow consumer slows its producer: over 100,000 firings no register holds more than its slots and memory stays flat.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "actors/testing.h"

namespace sluice {
namespace {

using namespace testing_plans;

void copy(const Call& call) {
  std::memcpy(call.out[0].data, call.in[0].data, size_t(call.out[0].numel()) * sizeof(float));
}
void slow_copy(const Call& call) {
  for (int i = 0; i < 4; ++i) std::this_thread::yield();
  copy(call);
}
constexpr OpDef copy_op{.name = "copy_it", .cpu = copy};
constexpr OpDef slow_op{.name = "slow_copy", .cpu = slow_copy};

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * 4096;
}

TEST(Backpressure, ASlowConsumerSlowsItsProducerAtConstantMemory) {
  constexpr int micro = 100, warm_up = 100, steps = 1000;
  PlanMaker make(micro * 2, micro);
  int c = make.cls(1, 2), other = make.cls(1, 1, 1);
  LogicalType type{DType::float32, {{2, batch_sym, 1}, {256}}};
  int x = make.reg("x", c, type, Sbp::broadcast(), 3), y = make.reg("y", c, type, Sbp::broadcast(), 4);
  int moved = make.reg("moved", other, type, Sbp::broadcast(), 2), z = make.reg("z", other, type);
  make.feed("x", c, x).firings = micro;
  make.op("fast", "copy_it", c, {{x}}, {{y}}).firings = micro;
  make.move("move", other, y, moved).firings = micro;
  make.op("slow", "slow_copy", other, {{moved}}, {{z}}).firings = micro;
  make.sink("z", other, z).firings = micro;
  const OpTable ops({&copy_op, &slow_op});
  FloorOptions options;
  options.workers = 2;
  Floor floor(make.plan, {ops, builtin_moves(), builtin_kinds(), builtin_devices(), builtin_readers()}, options);
  // The producers may run: it is the credits that hold them back, not the client.
  floor.grant(warm_up + steps);
  HostArray batch{DType::float32, {micro * 2, 256}, std::vector<std::byte>(size_t(micro) * 2 * 256 * sizeof(float))};
  int64_t fed = 0, before = 0;
  for (int64_t step = 0; step < warm_up + steps; ++step) {
    for (; fed < std::min<int64_t>(step + 8, warm_up + steps); ++fed) floor.feed({{"x", batch}});
    ASSERT_TRUE(floor.wait_step(std::chrono::milliseconds(60'000)));
    if (step == warm_up) before = resident_bytes();
  }
  EXPECT_LT(resident_bytes() - before, 2 << 20);
  floor.drain();
  RunStats stats = floor.stats();
  EXPECT_EQ(stats.fired["slow"], int64_t(warm_up + steps) * micro);
  for (auto& reg : make.plan.registers) EXPECT_LE(stats.alive_max[reg.name], reg.slots) << reg.name;
  EXPECT_EQ(stats.alive_max["y"], 4);  // the fast side does run ahead, as far as its credits go
}

}  // namespace
}  // namespace sluice
