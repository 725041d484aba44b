// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/messages.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

namespace sluice {
namespace {

HostArray bytes_array(size_t size, int seed) {
  HostArray array{DType::uint8, {int64_t(size)}, std::vector<std::byte>(size)};
  std::mt19937 random{unsigned(seed)};
  for (auto& byte : array.data) byte = std::byte(random());
  return array;
}

std::optional<uint64_t> any(const std::string&) { return uint64_t(1) << 40; }

TEST(Messages, ArraysAreCutAndComeTogetherAgain) {
  std::vector<std::pair<std::string, HostArray>> arrays;
  for (size_t size : {size_t(0), size_t(1), chunk_bytes_max - 1, chunk_bytes_max, 3 * chunk_bytes_max + 7, size_t(5)})
    arrays.push_back({"a" + std::to_string(arrays.size()), bytes_array(size, int(size))});
  std::vector<Named> named;
  for (auto& [name, array] : arrays) named.push_back({name, &array});
  Assembly assembly;
  int lasts = 0;
  cut(named, [&](std::vector<Chunk> chunks, bool last) {
    size_t bytes = 0;
    for (auto& chunk : chunks) bytes += chunk.data.size();
    EXPECT_LE(bytes, chunk_bytes_max);
    for (auto& chunk : chunks) assembly.add(std::move(chunk), any);
    lasts += last;
  });
  EXPECT_EQ(lasts, 1);
  auto whole = assembly.take_all();
  ASSERT_EQ(whole.size(), arrays.size());
  for (auto& [name, array] : arrays) {
    EXPECT_EQ(whole.at(name).dims, array.dims);
    EXPECT_TRUE(whole.at(name).data == array.data) << name;
  }
}

TEST(Messages, NothingIsReservedForWhatIsNotExpected) {
  Chunk good{"x", DType::float32, {4}, 16, 0, std::vector<std::byte>(8)};
  auto refuses = [&](auto change) {
    Assembly assembly;
    assembly.add(good, any);
    Chunk chunk = good;
    chunk.offset = 8;
    change(chunk);
    EXPECT_THROW(
        assembly.add(chunk, [](auto& name) { return name == "x" ? std::optional<uint64_t>(16) : std::nullopt; }),
        Error);
  };
  refuses([](Chunk& c) { c.name = "y"; });
  refuses([](Chunk& c) { c.offset = 7; });
  refuses([](Chunk& c) { c.offset = 9; });
  refuses([](Chunk& c) { c.offset = ~uint64_t(0); });
  refuses([](Chunk& c) { c.data.resize(9); });
  auto first = [&](auto change, uint64_t limit) {
    Chunk chunk = good;
    change(chunk);
    Assembly assembly;
    EXPECT_THROW(assembly.add(chunk, [&](auto&) { return std::optional(limit); }), Error);
  };
  first([](Chunk&) {}, 15);
  first([](Chunk& c) { c.total = 17; }, 1000);
  first([](Chunk& c) { c.dims = {-4}; }, 1000);
  first([](Chunk& c) { c.dims = {int64_t(1) << 62, 4, 4}, c.total = 0; }, ~uint64_t(0));
  first([](Chunk& c) { c.offset = 8; }, 1000);
  Assembly half;
  half.add(good, any);
  EXPECT_THROW(half.take_all(), Error);
}

TEST(Messages, WhoSendsWaitsWhileTooMuchIsUnderWay) {
  Flow flow;
  std::atomic<int64_t> under_way{0}, most{0};
  std::thread sender([&] {
    for (int i = 0; i < 200; ++i) {
      if (!flow.take(1 << 20)) return;
      most = std::max<int64_t>(most, under_way += 1 << 20);
    }
  });
  std::thread receiver([&] {
    for (int i = 0; i < 200;) {
      if (under_way == 0) continue;
      under_way -= 1 << 20;
      flow.give(1 << 20);
      ++i;
    }
  });
  sender.join(), receiver.join();
  EXPECT_LE(most, flow_bytes_max + (1 << 20));
  EXPECT_TRUE(flow.take(100 << 20));  // alone it may be larger
  std::thread waiting([&] { EXPECT_FALSE(flow.take(1)); });
  flow.close();
  waiting.join();
  EXPECT_TRUE(flow.closed());
}

}  // namespace
}  // namespace sluice
