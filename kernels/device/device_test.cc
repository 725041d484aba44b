// SPDX-License-Identifier: Apache-2.0
// The conformance suite of devices: every device of this machine passes every test. What a device that computes nothing
// cannot show (values), it must leave untouched. Work on devices is ops, since not all run functions of the host.
#include "kernels/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "kernels/op.h"

namespace sluice {
namespace {

using testing::HasSubstr;

const OpTable& table() {
  static const OpTable ops{{builtin_ops().begin(), builtin_ops().end()}};
  return ops;
}

template <class T>
T* shifted(T* device, std::ptrdiff_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(device) + uintptr_t(bytes));
}

View view(int64_t* data, int64_t n = 1) { return {.data = data, .dtype = DType::int64, .rank = 1, .dims = {n}}; }

// Enqueues an op as an actor does.
void run(DeviceStream& stream, const char* op, const std::vector<View>& in, const View& out, const Attrs& attrs = {}) {
  stream.launch([&stream, op, in, out, attrs](std::ptrdiff_t base) {
    std::vector<View> views = in;
    views.push_back(out);
    for (auto& v : views) v.data = shifted(static_cast<char*>(v.data), base);
    std::span<const View> all = views;
    run_op(table().at(op), {.in = all.first(in.size()), .out = all.last(1), .attrs = &attrs, .queue = stream.queue()});
  });
}

class EveryDevice : public testing::TestWithParam<const DeviceDef*> {
 protected:
  static constexpr int64_t numbers_max = 64;
  EveryDevice() : device(GetParam()->make({.seed = 7, .delay_us_max = 200})) {
    auto stream = device->stream();
    auto* host = allocate_pinned<int64_t>(numbers_max);
    std::iota(host, host + numbers_max, 0);
    numbers = allocate<int64_t>(numbers_max);
    device->copy_in(*stream, numbers, host, numbers_max * sizeof(int64_t));
    stream->synchronize();
  }
  ~EveryDevice() override {
    for (void* memory : allocated) device->release(memory);
    for (void* memory : pinned) device->release_pinned(memory);
  }
  template <class T>
  T* allocate(size_t n) {
    allocated.push_back(device->allocate(n * sizeof(T)));
    return static_cast<T*>(allocated.back());
  }
  template <class T>
  T* allocate_pinned(size_t n) {
    pinned.push_back(device->allocate_pinned(n * sizeof(T)));
    return static_cast<T*>(pinned.back());
  }
  // What `n` values at `memory` are, by a copy to the host.
  std::vector<int64_t> values(DeviceStream& stream, void* memory, size_t n) {
    auto* host = allocate_pinned<int64_t>(n);
    device->copy_out(stream, host, memory, n * sizeof(int64_t));
    stream.synchronize();
    return {host, host + n};
  }
  // A log is one number, from which the order of what was appended shows.
  void append(DeviceStream& stream, int64_t* log, int value) {
    run(stream, "multiply", {view(log), view(shifted(numbers, 31 * 8))}, view(log));
    run(stream, "add", {view(log), view(shifted(numbers, value * 8))}, view(log));
  }
  static int64_t log_of(int begin, int end, uint64_t log = 0) {
    for (int i = begin; i < end; ++i) log = log * 31 + uint64_t(i);
    return int64_t(log);
  }
  void fill(DeviceStream& stream, int64_t* memory, int64_t n, double value) {
    run(stream, "full", {}, view(memory, n),
        {{"shape", fixed_shape({n})}, {"fill_value", value}, {"dtype", DType::int64}});
  }

  std::unique_ptr<Device> device;
  std::vector<void*> allocated, pinned;
  int64_t* numbers = nullptr;
};

TEST_P(EveryDevice, IsNamedAndDocumented) {
  EXPECT_EQ(device->kind(), GetParam()->name);
  EXPECT_FALSE(GetParam()->doc.empty());
}

TEST_P(EveryDevice, MemoryIsAlignedAndZeroed) {
  auto stream = device->stream();
  for (size_t n : {size_t(1), size_t(17), size_t(1000), size_t(3) << 20}) {
    auto* memory = allocate<int64_t>(n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    if (!device->computes()) continue;
    auto got = values(*stream, memory, n);
    EXPECT_EQ(std::count(got.begin(), got.end(), 0), int64_t(n));
    fill(*stream, memory, int64_t(n), -1);
    EXPECT_EQ(values(*stream, memory, n).back(), -1);
    device->release(memory);
    allocated.back() = device->allocate(n * sizeof(int64_t));  // reused memory is clean too
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
  auto* log = allocate<int64_t>(1);
  for (int i = 0; i < 60; ++i) append(*stream, log, i);
  EXPECT_EQ(values(*stream, log, 1)[0], device->computes() ? log_of(0, 60) : 0);
}

TEST_P(EveryDevice, CopiesKeepTheOrderOfTheStream) {
  auto stream = device->stream();
  auto *in = allocate_pinned<int64_t>(64), *out = allocate_pinned<int64_t>(64);
  std::iota(in, in + 64, 1);
  std::fill(out, out + 64, -1);
  auto *a = allocate<int64_t>(64), *b = allocate<int64_t>(64);
  device->copy_in(*stream, a, in, 64 * sizeof(int64_t));
  run(*stream, "multiply", {view(a, 64), view(shifted(numbers, 3 * 8))}, view(a, 64));
  device->copy(*stream, b, a, 64 * sizeof(int64_t));
  fill(*stream, a, 64, 0);
  device->copy_out(*stream, out, b, 64 * sizeof(int64_t));
  device->copy_out(*stream, out, a, 0);
  stream->synchronize();
  for (int i = 0; i < 64; ++i) ASSERT_EQ(out[i], device->computes() ? 3 * (i + 1) : -1) << i;
}

TEST_P(EveryDevice, AnEventOrdersTwoStreams) {
  for (int round = 0; round < 20; ++round) {
    auto first = device->stream(), second = device->stream();
    auto* log = allocate<int64_t>(1);
    for (int i = 0; i < 10; ++i) append(*first, log, i);
    second->wait(first->record());
    for (int i = 10; i < 20; ++i) append(*second, log, i);
    first->wait(second->record());
    for (int i = 20; i < 30; ++i) append(*first, log, i);
    EXPECT_EQ(values(*first, log, 1)[0], device->computes() ? log_of(0, 30) : 0) << "round " << round;
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
  if (stream->queue()) {  // no function of the host can hold it back: it is long enough to be seen
    constexpr int64_t n = 1 << 18;
    auto* memory = allocate<int64_t>(n);
    EventPtr last;
    for (int i = 0; i < 50; ++i) {
      fill(*stream, memory, n, i);
      last = stream->record();
    }
    last->wait();
    EXPECT_TRUE(last->done());
    return;
  }
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
  auto *direct = allocate<int64_t>(3), *replayed = allocate<int64_t>(3);
  auto* in = allocate_pinned<int64_t>(1);
  auto enqueue = [&](int64_t* log) {
    append(*stream, log, 1);
    device->copy_in(*stream, shifted(log, 8), in, sizeof(int64_t));
    append(*stream, log, 2);
    device->copy(*stream, shifted(log, 16), shifted(log, 8), sizeof(int64_t));
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
  device->copy_in(*stream, shifted(direct, 8), in, sizeof(int64_t));
  device->copy_in(*stream, shifted(direct, 16), in, sizeof(int64_t));
  EXPECT_EQ(values(*stream, replayed, 3), values(*stream, direct, 3));
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

TEST_P(EveryDevice, ABadOperandIsReported) {
  auto stream = device->stream();
  auto* logits = allocate<float>(3 * 4);
  auto* loss = allocate<float>(1);
  View in{.data = logits, .rank = 2, .dims = {3, 4}}, labels = view(shifted(numbers, 2 * 8), 3), out{.data = loss};
  LogicalType types[] = {{DType::float32, fixed_shape({3, 4})}, {DType::int64, fixed_shape({3})}};
  Attrs attrs{{"reduction", std::string("mean")}};
  stream->launch([&, base_in = in, base_labels = labels, base_out = out](std::ptrdiff_t base) mutable {
    for (View* v : {&base_in, &base_labels, &base_out}) v->data = shifted(static_cast<char*>(v->data), base);
    View views[] = {base_in, base_labels};
    run_op(table().at("cross_entropy"),
           {.in = views, .out = {&base_out, 1}, .in_types = types, .attrs = &attrs, .queue = stream->queue()});
  });
  try {
    stream->synchronize();
    EXPECT_FALSE(device->computes());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::index);
    EXPECT_THAT(error.what(), HasSubstr("cross_entropy: label 4 of row 2 is outside of [0, 4)"));
  }
  EXPECT_EQ(stream->take_failure(), nullptr);
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
#ifdef SLUICE_TEST_EMULATED
  if (device->kind() == "cuda") return;  // this one's memory is the host's
#endif
  if (device->kind() == "cpu") {
    EXPECT_EQ(static_cast<int*>(memory)[15], 0);
    return;
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(*static_cast<volatile int*>(memory) = 1, "");
}

std::vector<const DeviceDef*> devices_here() {
  std::vector<const DeviceDef*> here;
  for (auto* def : builtin_devices())
    if (count_of(*def) > 0) here.push_back(def);
  return here;
}
INSTANTIATE_TEST_SUITE_P(Builtin, EveryDevice, testing::ValuesIn(devices_here()),
                         [](auto& info) { return std::string(info.param->name); });

// What the suite above could not run on is said here, with the reason.
TEST(Devices, ThatAreNotHereSaySo) {
  for (auto* def : builtin_devices()) {
    if (count_of(*def) > 0) continue;
    try {
      def->make({});
      ADD_FAILURE() << "there are 0 devices '" << def->name << "', but one was made";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::not_found);
      EXPECT_THAT(error.what(), HasSubstr("device " + std::string(def->name)));
      GTEST_SKIP() << "nothing ran on device '" << def->name << "': " << error.message();
    }
  }
}

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
