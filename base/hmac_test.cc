// SPDX-License-Identifier: Apache-2.0
#include "base/hmac.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace sluice {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (uint8_t byte : digest) {
    text += "0123456789abcdef"[byte / 16];
    text += "0123456789abcdef"[byte % 16];
  }
  return text;
}
std::vector<uint8_t> bytes(std::string_view text) { return {text.begin(), text.end()}; }

TEST(Hmac, MatchesRfc4231) {
  EXPECT_EQ(hex(hmac_sha256(std::vector<uint8_t>(20, 0x0b), bytes("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256(bytes("Jefe"), bytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::vector<uint8_t>(131, 0xaa),
                            bytes("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hex(hmac_sha256({}, {})), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(Hmac, ComparesWholeDigests) {
  Digest a = hmac_sha256(bytes("key"), bytes("a")), b = a;
  EXPECT_TRUE(equal_in_constant_time(a, b));
  b[31] ^= 1;
  EXPECT_FALSE(equal_in_constant_time(a, b));
  EXPECT_FALSE(equal_in_constant_time(a, std::span(a).first(31)));
  EXPECT_TRUE(equal_in_constant_time({}, {}));
}

TEST(RandomBytes, AreNotRepeatedAndFillEverything) {
  Digest a{}, b{};
  random_bytes(a);
  random_bytes(b);
  EXPECT_NE(a, b);
  std::vector<uint8_t> many(100'000);  // more than getrandom gives where it is interrupted
  random_bytes(many);
  int zeros = 0;
  for (uint8_t byte : std::span(many).last(1000)) zeros += byte == 0;
  EXPECT_LT(zeros, 100);
  random_bytes({});
}

}  // namespace
}  // namespace sluice
