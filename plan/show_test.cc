// SPDX-License-Identifier: Apache-2.0
#include "plan/show.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/samples.h"

namespace sluice {
namespace {

constexpr std::string_view text = R"(plan mlp seed=1 micro=2 batch=16 device=cpu
note w "(B) on main"
class 0 main mesh=main(dp=2)@0 arena=4096 least=4000
  stream compute
  register r0 x bytes=64 at=0 slots=2 by=a0 holds=[%0]
    tensor %0 x float32[8b,4] (S(0)) in=r0 bytes=64
  register r1 sum bytes=64 at=192 slots=1 by=a1 holds=[%1]
    tensor %1 sum float32[4,4] (P) in=r1 bytes=64
  register r2 w bytes=64 at=256 slots=1 by=a2 variable=w holds=[%2]
    tensor %2 w float32[4,4] (B) in=r2 bytes=64
  actor a0 rows source firings=2 out=[r0]
  actor a1 forward_1@main compute firings=2 in=[r0] out=[r1*2]
    op relu h (%0)->(%0) line=net.py:3
  actor a2 reduce@main move firings=1 in=[r1] out=[r2]
    move exchange %1->%2
)";

TEST(Show, IsAShortTable) {
  std::string shown = show(parse_plan(text));
  size_t hash = shown.find("hash ") + 5;
  shown.replace(hash, 16, "HASH");
  EXPECT_EQ(shown, R"(plan mlp: 2 cpu devices, batch 16 in 2 micro-batches, seed 1, hash HASH

  class  where      axes  stage  actors                        memory  at least
  main   ranks 0-1  dp=2      0  1 compute, 1 move, 1 source  4.0 KiB   3.9 KiB

  chain           class  phase    ops  firings a step
  forward_1@main  main   forward    1               2

  move      class  from -> to  tensors  messages a step  bytes a step
  exchange  main   (P) -> (B)        1                2         128 B

  register  class  use       slots  bytes a slot  bytes
  x         main   data          2          64 B  128 B
  sum       main   data          1          64 B   64 B
  w         main   variable      1          64 B   64 B

notes
  w: (B) on main
)");
}

TEST(Show, JsonHasStableKeys) {
  auto json = nlohmann::ordered_json::parse(plan_json(parse_plan(text)));
  std::vector<std::string> keys;
  for (auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(keys, testing::ElementsAre("job", "hash", "device", "ranks", "seed", "batch", "micro_batches", "exact",
                                         "classes", "actors", "moves", "registers", "notes"));
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["classes"][0]["actors"]["move"], 1);
  EXPECT_EQ(json["moves"][0]["bytes_per_step"], 128);
  EXPECT_EQ(json["moves"][0]["from"]["sbp"], "(P)");
  EXPECT_EQ(json["actors"][1]["ops"][0]["line"], "net.py:3");
  EXPECT_EQ(json["registers"][2]["variable"], "w");
}

TEST(Show, LongTablesAreSummedUp) {
  Plan plan = parse_plan(text);
  for (int i = 0; i < 40; ++i) plan.registers.push_back({.name = "r" + std::to_string(i), .bytes = 1024});
  EXPECT_THAT(show(plan), testing::HasSubstr("... and 27 more registers"));
}

TEST(Show, BytesHaveUnits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3.0 * 1024 * 1024 * 1024), "3.0 GiB");
}

TEST(Show, AnyNamesAreShown) {
  samples::Random random(31);
  for (int trial = 0; trial < 300; ++trial) {
    Plan plan = samples::any_plan(random);
    for (auto& actor : plan.actors) actor.moves.clear();  // their ends need equal types
    show(plan);
    EXPECT_TRUE(nlohmann::json::accept(plan_json(plan)));
  }
}

}  // namespace
}  // namespace sluice
