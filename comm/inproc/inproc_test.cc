// SPDX-License-Identifier: Apache-2.0
// What inproc promises beyond the suite of all transports: no copy, no allocation.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>

#include "comm/transport.h"

namespace {
thread_local int64_t allocations = 0;  // of this thread
}
// Not inlined: the compiler would see malloc beside delete.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace sluice {
namespace {

TEST(Inproc, HandsOverTheSendersMemoryWithoutAllocating) {
  auto transport = make_inproc();
  std::atomic<const std::byte*> seen{nullptr};
  std::atomic<int> released{0};
  Wire wire{.id = 1, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = 64};
  transport->open_receiver(wire, [&](const Arrival& arrival) { seen = arrival.data; });
  transport->open_sender(wire, [&](uint32_t) { ++released; });
  std::array<std::byte, 64> data{};
  int64_t before = allocations;
  for (int i = 0; i < 1000; ++i) {
    transport->send(1, 0, {}, data.data(), data.size(), nullptr);
    transport->release(1, 0);
  }
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(seen, data.data());
  EXPECT_EQ(released, 1000);
}

}  // namespace
}  // namespace sluice
