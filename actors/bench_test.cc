// SPDX-License-Identifier: Apache-2.0
// The bench runs and says what it should; figures themselves are no matter for a test.
#include "actors/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {

TEST(Bench, ActorsAreMeasured) {
  std::string json = bench_actors_json();
  for (auto key : {"hop_ns", "hop_spin_ns", "fire_ns", "chain_overhead", "idle_cpu_percent"})
    EXPECT_THAT(json, testing::HasSubstr(std::string("\"") + key + "\": "));
  RecordProperty("figures", json);
}

}  // namespace sluice
