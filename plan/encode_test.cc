// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <set>

#include "base/error.h"
#include "plan/samples.h"

namespace sluice {
namespace {

using Bytes = std::vector<std::byte>;

// Makes the checksum right again, so that what comes behind it is reached.
void sign(Bytes& bytes) {
  if (bytes.size() < 16) return;
  uint64_t sum = XXH64(bytes.data() + 16, bytes.size() - 16, 0);
  std::memcpy(bytes.data() + 8, &sum, 8);
}

TEST(PlanBytes, AnyPlanRoundTrips) {
  samples::Random random(3);
  for (int trial = 0; trial < 1'000; ++trial) {
    Plan plan = samples::any_plan(random);
    Bytes bytes = encode(plan);
    ASSERT_TRUE(decode(bytes) == plan) << text_of(plan);
    ASSERT_EQ(encode(decode(bytes)), bytes);
    Plan copy = plan;
    ASSERT_EQ(encode(copy), bytes);
    ASSERT_EQ(hash_of(copy), hash_of(plan));
  }
}

TEST(PlanBytes, TextAndBytesAgree) {
  samples::Random random(4);
  for (int trial = 0; trial < 200; ++trial) {
    Plan plan = samples::any_plan(random);
    ASSERT_EQ(encode(parse_plan(text_of(plan))), encode(plan));
  }
}

TEST(PlanBytes, EveryFieldCounts) {
  samples::Random random(5);
  Plan plan = samples::any_plan(random);
  while (plan.actors.empty() || plan.actors[0].ops.empty()) plan = samples::any_plan(random);
  std::set<uint64_t> hashes{hash_of(plan)};
  auto changed = [&](auto change) {
    Plan other = plan;
    change(other);
    EXPECT_TRUE(hashes.insert(hash_of(other)).second);
  };
  changed([](Plan& p) { ++p.seed; });
  changed([](Plan& p) { p.exact = !p.exact; });
  changed([](Plan& p) { ++p.registers[0].slots; });
  changed([](Plan& p) { ++p.tensors[0].offset; });
  changed([](Plan& p) { ++p.actors[0].key; });
  changed([](Plan& p) { p.actors[0].ops[0].name += "x"; });
  changed([](Plan& p) { ++p.actors[0].ops[0].workspace_bytes; });
  changed([](Plan& p) { p.notes.emplace_back("a", "b"); });
}

TEST(PlanBytes, RefusesWhatIsNoPlan) {
  samples::Random random(6);
  Bytes bytes = encode(samples::any_plan(random));
  auto refused = [](const Bytes& bytes, std::string_view why) {
    try {
      decode(bytes);
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io);
      EXPECT_NE(error.message().find(why), std::string::npos) << error.message();
    }
  };
  refused({}, "does not start with SLUICEP1");
  refused(Bytes(bytes.begin(), bytes.begin() + 16), "length");
  refused(Bytes(bytes.begin(), bytes.end() - 8), "checksum");
  Bytes flipped = bytes;
  flipped[20] ^= std::byte(1);
  refused(flipped, "checksum");
  Bytes other = bytes;
  other[6] = std::byte('J');
  refused(other, "does not start");
}

TEST(PlanBytes, HugeCountsAreRefusedBeforeTheyAreBelieved) {
  // A list of 2^29 - 1 elements of no size, where the classes' list should be: the root has 3 data words.
  samples::Random random(7);
  Bytes bytes = encode(samples::any_plan(random));
  for (size_t word = 3; word < 16; ++word) {
    Bytes hostile = bytes;
    uint64_t pointer = 1 | uint64_t(0xffffffffu & ~7u) << 32;
    std::memcpy(hostile.data() + 16 + word * 8, &pointer, 8);
    sign(hostile);
    try {
      Plan plan = decode(hostile);
      EXPECT_LT(plan.actors.size() + plan.tensors.size(), 1000u);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io);
    }
  }
}

// Flips, cuts and splices, each with its checksum made right: refused as Error(io), or a sound plan.
TEST(PlanBytes, CorruptBytesNeverCrash) {
  samples::Random random(8);
  int taken = 0;
  Bytes bytes;
  for (int trial = 0; trial < 6'000; ++trial) {
    if (trial % 20 == 0) bytes = encode(samples::any_plan(random));
    Bytes corrupt = bytes;
    for (size_t n = 1 + random() % 4; n-- > 0;) {
      size_t at = 16 + random() % (corrupt.size() - 16);
      if (random() % 4 == 0)
        corrupt[at] = std::byte(random());
      else
        corrupt[at] ^= std::byte(1 << random() % 8);
    }
    if (random() % 4 == 0) corrupt.resize(16 + random() % (corrupt.size() - 16) / 8 * 8 + 8);
    sign(corrupt);
    try {
      Plan plan = decode(corrupt);
      ++taken;
      text_of(plan);
      EXPECT_EQ(encode(decode(encode(plan))), encode(plan));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io);
    }
  }
  EXPECT_GT(taken, 100);
  EXPECT_LT(taken, 5'900);
}

}  // namespace
}  // namespace sluice
