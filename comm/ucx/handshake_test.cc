// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/handshake.h"

#include <gtest/gtest.h>

namespace sluice::ucx {
namespace {

ProcessGroup group_of(int process, uint8_t key = 7, uint64_t run = 5) {
  ProcessGroup group{.process = process, .processes = 3, .run = run};
  group.key.fill(key);
  return group;
}

TEST(Handshake, BothSidesProveTheKeyAndAgreeOnASession) {
  Handshake a(group_of(0), 1), b(group_of(1), 0);
  EXPECT_TRUE(b.accept(a.answer(b.nonce())));
  EXPECT_TRUE(a.accept(b.answer(a.nonce())));
  EXPECT_EQ(a.session(), b.session());
  EXPECT_NE(a.session(), 0u);
}

TEST(Handshake, EachSessionIsAnother) {
  auto session = [] {
    Handshake a(group_of(0), 1), b(group_of(1), 0);
    EXPECT_TRUE(a.accept(b.answer(a.nonce())));
    return a.session();
  };
  EXPECT_NE(session(), session());
}

TEST(Handshake, RefusesWhatProvesNothing) {
  Handshake a(group_of(0), 1), b(group_of(1), 0);
  EXPECT_FALSE(a.accept(Handshake(group_of(1, 8), 0).answer(a.nonce()))) << "another key";
  EXPECT_FALSE(a.accept(Handshake(group_of(1, 7, 6), 0).answer(a.nonce()))) << "another run";
  EXPECT_FALSE(a.accept(Handshake(group_of(2), 0).answer(a.nonce()))) << "another process";
  EXPECT_FALSE(a.accept(a.answer(a.nonce()))) << "its own words";
  EXPECT_FALSE(a.accept(b.answer(Nonce{}))) << "a proof to somebody else";
  Proof damaged = b.answer(a.nonce());
  damaged.digest[31] ^= 1;
  EXPECT_FALSE(a.accept(damaged));
  Proof swapped = b.answer(a.nonce());
  swapped.from[0] ^= 1;
  EXPECT_FALSE(a.accept(swapped));
  EXPECT_EQ(a.session(), 0u);
  Proof good = b.answer(a.nonce());
  EXPECT_FALSE(Handshake(group_of(0), 1).accept(good)) << "a proof of yesterday";
  EXPECT_TRUE(a.accept(good));
}

}  // namespace
}  // namespace sluice::ucx
