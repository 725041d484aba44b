// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/handshake.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice {
namespace {

using Bytes = Handshake::Bytes;

struct Caller {
  Secret secret = make_secret();
  Digest nonce{};
  Caller() { random_bytes(nonce); }
  Bytes hello(Role role = Role::worker) const { return Handshake::hello(role, nonce); }
  Bytes prove(const Bytes& challenge, Role role = Role::worker) const {
    return Handshake::prove(secret, role, nonce, challenge, "the coordinator");
  }
};

// In pieces, as a network may bring them.
Handshake::State give(Handshake& hand, const Bytes& bytes, size_t piece) {
  auto state = Handshake::listening;
  for (size_t i = 0; i < bytes.size() && state != Handshake::refused; i += piece)
    state = hand.take(std::span(bytes).subspan(i, std::min({piece, bytes.size() - i, hand.wanted()})));
  return state;
}

TEST(Handshake, WhoKnowsTheSecretIsLetIn) {
  for (Role role : {Role::worker, Role::client})
    for (size_t piece : {1, 7, 48}) {
      Caller caller;
      Handshake hand(caller.secret);
      ASSERT_EQ(give(hand, caller.hello(role), piece), Handshake::proving);
      auto challenge = hand.answer();
      ASSERT_EQ(challenge.size(), Handshake::challenge_bytes);
      ASSERT_EQ(give(hand, caller.prove(challenge, role), piece), Handshake::accepted);
      EXPECT_EQ(hand.answer().size(), 1u);
      EXPECT_EQ(hand.wanted(), 0u);
      EXPECT_EQ(hand.role(), role);
    }
}

TEST(Handshake, AnotherSecretIsNoticedOnBothSides) {
  Caller caller;
  Handshake hand(make_secret());
  give(hand, caller.hello(), 48);
  EXPECT_THROW(caller.prove(hand.answer()), Error);
  EXPECT_EQ(give(hand, Bytes(Handshake::proof_bytes, 0), 32), Handshake::refused);
  EXPECT_TRUE(hand.answer().empty());
}

TEST(Handshake, NothingIsReplayedReflectedOrGivenAnotherRole) {
  Caller caller;
  Handshake first(caller.secret);
  give(first, caller.hello(), 48);
  auto challenge = first.answer();
  auto proof = caller.prove(challenge);
  ASSERT_EQ(give(first, proof, 32), Handshake::accepted);
  Handshake again(caller.secret);  // the same words, heard by somebody
  give(again, caller.hello(), 48);
  EXPECT_NE(again.answer(), challenge);
  EXPECT_EQ(give(again, proof, 32), Handshake::refused);
  Handshake mirror(caller.secret);  // the coordinator's own proof
  give(mirror, caller.hello(), 48);
  auto theirs = mirror.answer();
  EXPECT_EQ(give(mirror, Bytes(theirs.begin() + 48, theirs.end()), 32), Handshake::refused);
  Handshake other(caller.secret);  // a worker's proof for a client's call
  give(other, caller.hello(Role::client), 48);
  auto asked = other.answer();
  EXPECT_THROW(caller.prove(asked, Role::worker), Error);
}

TEST(Handshake, OtherVersionsAndRolesAreRefused) {
  Caller caller;
  auto hello = caller.hello();
  hello[8] ^= 1;
  Handshake hand(caller.secret);
  EXPECT_EQ(give(hand, hello, 48), Handshake::refused);
  auto answer = hand.answer();  // says ours
  ASSERT_EQ(answer.size(), Handshake::challenge_bytes);
  answer[8] ^= 2;
  EXPECT_THROW(caller.prove(answer), Error);
  hello = caller.hello(Role(9));
  Handshake nobody(caller.secret);
  EXPECT_EQ(give(nobody, hello, 48), Handshake::refused);
}

TEST(Handshake, JunkIsRefusedAtItsFirstWrongByte) {
  Handshake hand(make_secret());
  uint8_t first[4] = {0xff, 0xff, 0xff, 0xff};
  EXPECT_EQ(hand.take(first), Handshake::refused);
  std::mt19937 random(3);
  Caller caller;
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = caller.hello();
    bool touched = i % 2;
    if (touched)
      bytes[random() % 11] ^= uint8_t(1 + random() % 255);
    else
      for (auto& byte : bytes) byte = uint8_t(random());
    Handshake fuzzed(caller.secret);
    auto state = give(fuzzed, bytes, 1 + random() % 48);
    if (bytes[10] != uint8_t(Role::client) || !touched) {
      EXPECT_EQ(state, Handshake::refused);
    }
    std::vector<uint8_t> challenge(random() % 100);
    for (auto& byte : challenge) byte = uint8_t(random());
    EXPECT_THROW(caller.prove(challenge), Error);
  }
}

}  // namespace
}  // namespace sluice
