// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/frames.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace sluice {
namespace {

using Words = std::vector<uint32_t>;

// A head with these numbers, padded, and a body of the size it claims.
std::vector<std::byte> message(const Words& sizes) {
  Words head{uint32_t(sizes.size() - 1)};
  head.insert(head.end(), sizes.begin(), sizes.end());
  if (head.size() % 2) head.push_back(0);
  size_t body = 0;
  for (auto size : sizes) body += size_t(size) * 8;
  std::vector<std::byte> bytes(head.size() * 4 + body, std::byte(0xff));
  std::memcpy(bytes.data(), head.data(), head.size() * 4);
  return bytes;
}

bool take(FrameCheck& check, const std::vector<std::byte>& bytes, size_t piece) {
  for (size_t i = 0; i < bytes.size(); i += piece)
    if (!check.take(std::span(bytes).subspan(i, std::min(piece, bytes.size() - i)))) return false;
  return true;
}

TEST(Frames, MessagesPassHoweverTheyAreCut) {
  std::mt19937 random(5);
  FrameCheck check;
  for (int i = 0; i < 2000; ++i) {
    Words sizes(1 + random() % (i % 10 == 0 ? 512 : 4));
    for (auto& size : sizes) size = random() % 5;
    ASSERT_TRUE(take(check, message(sizes), 1 + random() % 40)) << i;
  }
}

TEST(Frames, WhatClaimsTooMuchIsRefusedBeforeItIsRead) {
  auto refuses = [](const Words& head) {
    FrameCheck check;
    std::vector<std::byte> bytes(head.size() * 4);
    std::memcpy(bytes.data(), head.data(), bytes.size());
    EXPECT_FALSE(check.take(bytes));
  };
  refuses({0xffffffff});  // one segment more than there are numbers
  refuses({512});
  refuses({0, (8 << 20) / 8 + 1});
  refuses({1, (8 << 20) / 8, 1});
  refuses({2, 0xffffffff, 0xffffffff, 0xffffffff});
  FrameCheck check;
  EXPECT_TRUE(take(check, message({(8 << 20) / 8}), 1 << 16));
  EXPECT_FALSE(take(check, message({(8 << 20) / 8 + 1}), 1 << 16));
}

TEST(Frames, AnyBytesAreReadWithoutHarm) {
  std::mt19937 random(6);
  for (int i = 0; i < 5000; ++i) {
    FrameCheck check;
    std::vector<std::byte> bytes(random() % 200);
    for (auto& byte : bytes) byte = std::byte(random() % (i % 2 ? 256 : 2));
    take(check, bytes, 1 + random() % 20);
  }
}

}  // namespace
}  // namespace sluice
