// SPDX-License-Identifier: Apache-2.0
// The conformance suite of devices: every device passes every test. What a device that computes nothing cannot show
// (values), it must leave untouched.
#include "kernels/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

using testing::HasSubstr;

template <class T>
T* at(void* device, std::ptrdiff_t base) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(device) + uintptr_t(base));
}

class EveryDevice : public testing::TestWithParam<const DeviceDef*> {
 protected:
  EveryDevice() : device(GetParam()->make({.seed = 7, .delay_us_max = 200})) {}
  ~EveryDevice() override {
    for (void* memory : allocated) device->release(memory);
    for (void* memory : pinned) device->release_pinned(memory);
  }
  template <class T>
  void* allocate(size_t n) {
    allocated.push_back(device->allocate(n * sizeof(T)));
    return allocated.back();
  }
  template <class T>
  T* allocate_pinned(size_t n) {
    pinned.push_back(device->allocate_pinned(n * sizeof(T)));
    return static_cast<T*>(pinned.back());
  }
  // What `n` values at `memory` are, by a copy to the host.
  std::vector<int> values(DeviceStream& stream, void* memory, size_t n) {
    int* host = allocate_pinned<int>(n);
    device->copy_out(stream, host, memory, n * sizeof(int));
    stream.synchronize();
    return {host, host + n};
  }
  static void append(DeviceStream& stream, void* log, int value) {  // log[0] counts, log[1..] are the values
    stream.launch([=](std::ptrdiff_t base) {
      int* at_log = at<int>(log, base);
      at_log[++at_log[0]] = value;
    });
  }

  std::unique_ptr<Device> device;
  std::vector<void*> allocated, pinned;
};

TEST_P(EveryDevice, IsNamedAndDocumented) {
  EXPECT_EQ(device->kind(), GetParam()->name);
  EXPECT_FALSE(GetParam()->doc.empty());
}

TEST_P(EveryDevice, MemoryIsAlignedAndZeroed) {
  auto stream = device->stream();
  for (size_t n : {size_t(1), size_t(17), size_t(1000), size_t(3) << 20}) {
    void* memory = allocate<int>(n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    if (!device->computes()) continue;
    auto got = values(*stream, memory, n);
    EXPECT_EQ(std::count(got.begin(), got.end(), 0), int64_t(n));
    stream->launch([=](std::ptrdiff_t base) { std::memset(at<int>(memory, base), 0xFF, n * sizeof(int)); });
    stream->synchronize();
    device->release(std::exchange(allocated.back(), device->allocate(n * sizeof(int))));  // reused memory is clean too
    got = values(*stream, allocated.back(), n);
    EXPECT_EQ(std::count(got.begin(), got.end(), 0), int64_t(n));
  }
}

TEST_P(EveryDevice, AddressesAreDistinctEvenOfNothing) {
  void *a = allocate<int>(0), *b = allocate<int>(0), *c = allocate<int>(1);
  EXPECT_NE(a, nullptr);
  EXPECT_NE(a, b);
  EXPECT_NE(b, c);
}

TEST_P(EveryDevice, PinnedMemoryIsTheHosts) {
  int* host = allocate_pinned<int>(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(host) % 64, 0u);
  EXPECT_EQ(std::count(host, host + 100, 0), 100);
  std::iota(host, host + 100, 0);
  EXPECT_EQ(host[99], 99);
}

TEST_P(EveryDevice, AnAbsurdSizeIsRefusedWithItsBytes) {
  for (size_t bytes : {size_t(1) << 60, SIZE_MAX}) {
    try {
      device->allocate(bytes);
      FAIL() << bytes << " bytes were granted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(bytes)));
      EXPECT_THAT(error.what(), HasSubstr(std::string(device->kind())));
    }
  }
}

TEST_P(EveryDevice, LaunchesOfAStreamRunInOrder) {
  auto stream = device->stream();
  void* log = allocate<int>(101);
  for (int i = 0; i < 100; ++i) append(*stream, log, i);
  auto got = values(*stream, log, 101);
  std::vector<int> expected(101);
  if (device->computes()) {
    std::iota(expected.begin() + 1, expected.end(), 0);
    expected[0] = 100;
  }
  EXPECT_EQ(got, expected);
}

TEST_P(EveryDevice, CopiesKeepTheOrderOfTheStream) {
  auto stream = device->stream();
  int *in = allocate_pinned<int>(64), *out = allocate_pinned<int>(64);
  std::iota(in, in + 64, 1);
  std::fill(out, out + 64, -1);
  void *a = allocate<int>(64), *b = allocate<int>(64);
  device->copy_in(*stream, a, in, 64 * sizeof(int));
  stream->launch([=](std::ptrdiff_t base) {
    for (int i = 0; i < 64; ++i) at<int>(a, base)[i] *= 3;
  });
  device->copy(*stream, b, a, 64 * sizeof(int));
  stream->launch([=](std::ptrdiff_t base) { std::memset(at<int>(a, base), 0, 64 * sizeof(int)); });
  device->copy_out(*stream, out, b, 64 * sizeof(int));
  device->copy_out(*stream, out, a, 0);
  stream->synchronize();
  for (int i = 0; i < 64; ++i) ASSERT_EQ(out[i], device->computes() ? 3 * (i + 1) : -1) << i;
}

TEST_P(EveryDevice, AnEventOrdersTwoStreams) {
  for (int round = 0; round < 20; ++round) {
    auto first = device->stream(), second = device->stream();
    void* log = allocate<int>(41);
    for (int i = 0; i < 10; ++i) append(*first, log, i);
    second->wait(first->record());
    for (int i = 10; i < 20; ++i) append(*second, log, i);
    first->wait(second->record());
    for (int i = 20; i < 30; ++i) append(*first, log, i);
    auto got = values(*first, log, 31);
    if (!device->computes()) continue;
    EXPECT_EQ(got[0], 30);
    EXPECT_TRUE(std::is_sorted(got.begin() + 1, got.end())) << "round " << round;
    second->synchronize();
  }
}

TEST_P(EveryDevice, AnEventIsCompleteWhenWhatCameBeforeIs) {
  auto stream = device->stream();
  std::atomic<int> ran = 0;
  for (int i = 0; i < 20; ++i) stream->launch([&](std::ptrdiff_t) { ++ran; });
  EventPtr event = stream->record();
  if (event) {
    event->wait();
    EXPECT_TRUE(event->done());
  } else {
    EXPECT_FALSE(device->async());
  }
  EXPECT_EQ(ran, device->computes() ? 20 : 0);
  stream->wait(nullptr);  // null: complete
  stream->synchronize();
}

TEST_P(EveryDevice, AnEventIsPendingWhileWorkIs) {
  if (!device->async()) {  // there is no pending work to see
    EXPECT_EQ(device->stream()->record(), nullptr);
    return;
  }
  auto stream = device->stream();
  std::atomic<bool> open = false;
  stream->launch([&](std::ptrdiff_t) { open.wait(false); });
  EventPtr event = stream->record();
  EXPECT_FALSE(event->done());
  open = true;
  open.notify_all();
  event->wait();
  EXPECT_TRUE(event->done());
}

TEST_P(EveryDevice, CaptureRunsNothingAndReplayEqualsDirect) {
  auto stream = device->stream();
  void *direct = allocate<int>(64), *replayed = allocate<int>(64);
  int* in = allocate_pinned<int>(1);
  auto enqueue = [&](void* log) {
    append(*stream, log, 1);
    device->copy_in(*stream, at<int>(log, 63 * sizeof(int)), in, sizeof(int));
    append(*stream, log, 2);
    device->copy(*stream, at<int>(log, 62 * sizeof(int)), at<int>(log, 63 * sizeof(int)), sizeof(int));
  };
  for (int i = 0; i < 3; ++i) enqueue(direct);
  stream->synchronize();
  stream->begin_capture();
  enqueue(replayed);
  int graph = stream->end_capture();
  EXPECT_EQ(values(*stream, replayed, 1)[0], 0);
  *in = 9;
  for (int i = 0; i < 3; ++i) stream->replay(graph);
  stream->begin_capture();
  EXPECT_NE(stream->end_capture(), graph);
  stream->replay(graph + 1);  // an empty graph
  device->copy_in(*stream, at<int>(direct, 63 * sizeof(int)), in, sizeof(int));
  device->copy_in(*stream, at<int>(direct, 62 * sizeof(int)), in, sizeof(int));
  EXPECT_EQ(values(*stream, replayed, 64), values(*stream, direct, 64));
}

TEST_P(EveryDevice, AFailureIsReportedOnceAndStopsTheStream) {
  if (!device->computes()) {
    auto stream = device->stream();
    stream->launch([](std::ptrdiff_t) { throw std::runtime_error("never runs"); });
    EXPECT_NO_THROW(stream->synchronize());
    EXPECT_EQ(stream->take_failure(), nullptr);
    return;
  }
  auto stream = device->stream();
  int later = 0;
  auto fail = [&] {
    stream->launch([](std::ptrdiff_t) { throw std::runtime_error("planted"); });
    stream->launch([&](std::ptrdiff_t) { ++later; });
    if (EventPtr event = stream->record()) event->wait();  // completes although its stream failed
  };
  fail();
  EXPECT_THROW(stream->synchronize(), std::runtime_error);
  EXPECT_NO_THROW(stream->synchronize());
  EXPECT_EQ(stream->take_failure(), nullptr);
  fail();
  auto failure = stream->take_failure();
  ASSERT_NE(failure, nullptr);
  EXPECT_THROW(std::rethrow_exception(failure), std::runtime_error);
  EXPECT_EQ(stream->take_failure(), nullptr);
  EXPECT_NO_THROW(stream->synchronize());
  EXPECT_EQ(later, 0);
  stream->launch([&](std::ptrdiff_t) { ++later; });
  stream->synchronize();
  EXPECT_EQ(later, 1);
}

TEST_P(EveryDevice, AStreamMayGoWithWorkPending) {
  std::atomic<int> ran = 0;
  {
    auto first = device->stream(), second = device->stream();
    for (int i = 0; i < 50; ++i) first->launch([&](std::ptrdiff_t) { ++ran; });
    second->wait(first->record());
    second->launch([&](std::ptrdiff_t) { ++ran; });
    first->launch([](std::ptrdiff_t) { throw std::runtime_error("nobody asks"); });
  }
  EXPECT_EQ(ran, device->computes() ? 51 : 0);
}

TEST_P(EveryDevice, TheHostCannotTouchMemoryOfAnotherAddressSpace) {
  void* memory = allocate<int>(16);
  if (device->kind() == "cpu") {
    EXPECT_EQ(static_cast<int*>(memory)[15], 0);
    return;
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(*static_cast<volatile int*>(memory) = 1, "");
}

INSTANTIATE_TEST_SUITE_P(Builtin, EveryDevice, testing::ValuesIn(builtin_devices().begin(), builtin_devices().end()),
                         [](auto& info) { return std::string(info.param->name); });

// Two streams without an event between them: at some seed the second overtakes the first, so a missing event shows.
TEST(Sim, StreamsWithoutAnEventAreNotOrdered) {
  const DeviceDef* sim = nullptr;
  for (auto* def : builtin_devices())
    if (def->name == "sim") sim = def;
  ASSERT_NE(sim, nullptr);
  bool overtaken = false;
  for (uint64_t seed = 0; seed < 200 && !overtaken; ++seed) {
    auto device = sim->make({.seed = seed, .delay_us_max = 500});
    auto first = device->stream(), second = device->stream();
    std::atomic<int> order = 0;
    int at_first = 0, at_second = 0;
    first->launch([&](std::ptrdiff_t) { at_first = ++order; });
    second->launch([&](std::ptrdiff_t) { at_second = ++order; });
    first->synchronize();
    second->synchronize();
    overtaken = at_second < at_first;
  }
  EXPECT_TRUE(overtaken);
}

}  // namespace
}  // namespace sluice
