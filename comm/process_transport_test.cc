// SPDX-License-Identifier: Apache-2.0
// What transports between processes promise beyond the suite of all transports: real processes, their deaths, and who
// may not connect. A new one is one more line in `between_processes`.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/testing.h"
#include "comm/transport.h"

namespace sluice {
namespace {

using testing::ForkedPeer;
using testing::group_of;
using testing::Losses;
using testing::Queue;
using testing::Talk;
using testing::TransportKind;

constexpr TransportKind between_processes[] = {
    {"shm", nullptr, make_shm}, {"ucx", nullptr, [](const ProcessGroup& group) { return make_ucx(group, ""); }}};

class EveryProcessTransport : public ::testing::TestWithParam<TransportKind> {
 protected:
  std::unique_ptr<ProcessTransport> make(const ProcessGroup& group) { return GetParam().between(group); }

  // What connect() throws; "" for nothing.
  std::string refusal(ProcessTransport& transport, const std::vector<std::string>& addresses) {
    try {
      transport.connect(addresses);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

std::byte* memory_of(Transport& transport, size_t bytes, std::vector<std::byte>& heap) {
  if (transport.memory()) return static_cast<std::byte*>(transport.memory()->allocate(bytes));
  heap.resize(bytes);
  return heap.data();
}

constexpr Wire there{.id = 1, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = size_t(64) << 20};
constexpr Wire back{.id = 2, .from_rank = 1, .to_rank = 0, .slots = 2, .bytes_max = size_t(64) << 20};

// Sends back whatever arrives, from memory of its own.
void echo(ProcessTransport& transport, Talk& talk) {
  Queue<Arrival> arrivals;
  Queue<uint32_t> credits;
  std::vector<std::byte> heap;
  std::byte* memory = memory_of(transport, back.bytes_max, heap);
  transport.open_receiver(there, [&](const Arrival& arrival) { arrivals.post(arrival); });
  transport.open_sender(back, [&](uint32_t slot) { credits.post(slot); });
  credits.post(0);
  talk.say("open");
  for (;;) {
    Arrival arrival = arrivals.take();
    uint32_t slot = credits.take();
    size_t bytes = size_t(arrival.header.bytes_valid);
    if (bytes > 0) std::memcpy(memory, arrival.data, bytes);
    transport.send(back.id, slot, arrival.header, memory, bytes, nullptr);
    transport.release(there.id, arrival.slot);
  }
}

TEST_P(EveryProcessTransport, CarriesEverySizeThereAndBack) {
  Losses losses;
  ProcessGroup group = group_of(0, &losses);
  ForkedPeer peer(GetParam(), group, echo);
  auto transport = make(group);
  peer.connect(*transport);
  Queue<Arrival> arrivals;
  Queue<uint32_t> credits;
  transport->open_sender(there, [&](uint32_t slot) { credits.post(slot); });
  transport->open_receiver(back, [&](const Arrival& arrival) { arrivals.post(arrival); });
  peer.talk().hear();
  std::vector<std::byte> heap;
  std::byte* memory = memory_of(*transport, there.bytes_max, heap);
  for (size_t size : {size_t(0), size_t(1), size_t(4097), (size_t(1) << 20) + 3, size_t(64) << 20}) {
    for (size_t i = 0; i < size; ++i) memory[i] = std::byte(i * 37 + size);
    transport->send(there.id, 0, SlotHeader{.sequence = 4, .bytes_valid = int64_t(size)}, memory, size, nullptr);
    Arrival arrival = arrivals.take();
    EXPECT_EQ(arrival.header.bytes_valid, int64_t(size));
    EXPECT_EQ(arrival.header.sequence, 4);
    EXPECT_TRUE(size == 0 || std::memcmp(arrival.data, memory, size) == 0) << size;
    transport->release(back.id, arrival.slot);
    credits.take();
  }
  transport->close();
  EXPECT_EQ(losses.size(), 0u);
}

// Sends without end, as credits allow.
void stream(ProcessTransport& transport, Talk& talk) {
  Queue<uint32_t> credits;
  std::vector<std::byte> heap;
  std::byte* memory = memory_of(transport, 2 << 20, heap);
  transport.open_receiver(there, [](const Arrival&) {});
  transport.open_sender(back, [&](uint32_t slot) { credits.post(slot); });
  for (uint32_t slot = 0; slot < back.slots; ++slot) credits.post(slot);
  if (talk.hear() != "start") return;
  for (;;) {
    uint32_t slot = credits.take();
    std::byte* data = memory + slot * (size_t(1) << 20);
    std::memset(data, 7, 1 << 20);
    transport.send(back.id, slot, SlotHeader{.bytes_valid = 1 << 20}, data, 1 << 20, nullptr);
  }
}

// A peer that streams, and its end by a signal while it does.
void lose_a_streaming_peer(const TransportKind& kind, int silence_ms_max, int signal) {
  Losses losses;
  ProcessGroup group = group_of(0, &losses, silence_ms_max);
  ForkedPeer peer(kind, group, stream);
  auto transport = kind.between(group);
  peer.connect(*transport);
  Queue<Arrival> arrivals;
  transport->open_sender(there, [](uint32_t) {});
  transport->open_receiver(back, [&](const Arrival& arrival) { arrivals.post(arrival); });
  peer.talk().say("start");
  for (int i = 0; i < 50; ++i) transport->release(back.id, arrivals.take().slot);
  Arrival held = arrivals.take();
  peer.signal(signal);
  auto [process, why] = losses.take();
  EXPECT_EQ(process, 1);
  EXPECT_FALSE(why.empty());
  for (size_t i = 0; i < size_t(1) << 20; i += 4096) ASSERT_EQ(held.data[i], std::byte(7)) << "what arrived stays";
  transport->release(back.id, held.slot);
  std::vector<std::byte> heap;
  std::byte* memory = memory_of(*transport, 64, heap);
  transport->send(there.id, 0, {}, memory, 64, nullptr);
  try {
    transport->refresh(there.id, 0, {}, memory, 64);
    ADD_FAILURE() << "nobody has it";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("process 1"), std::string::npos) << error.what();
  }
  peer.end();
  transport->close();
  EXPECT_EQ(losses.size(), 0u) << "a peer is lost once";
}

TEST_P(EveryProcessTransport, APeerKilledInMidTransferIsLost) { lose_a_streaming_peer(GetParam(), 60'000, SIGKILL); }

TEST_P(EveryProcessTransport, AStoppedPeerIsLostWhenTheTimeIsOver) { lose_a_streaming_peer(GetParam(), 1000, SIGSTOP); }

// refresh() waits for its answer, so it sees the end however it comes.
TEST_P(EveryProcessTransport, AnOrderlyCloseIsNoLoss) {
  Losses losses;
  auto a = make(group_of(0, &losses)), b = make(group_of(1, &losses));
  testing::connect(*a, *b);
  a->open_sender(there, [](uint32_t) {});
  b->close();
  std::vector<std::byte> heap;
  EXPECT_THROW(a->refresh(there.id, 0, {}, memory_of(*a, 8, heap), 8), Error);
  a->send(there.id, 0, {}, nullptr, 0, nullptr);
  a->close();
  EXPECT_EQ(losses.size(), 0u);
}

TEST_P(EveryProcessTransport, AnotherKeyOrRunIsRefused) {
  for (bool other_key : {true, false}) {
    ProcessGroup group = group_of(0, nullptr, 150), stranger = group_of(1, nullptr, 150);
    if (other_key)
      stranger.key.fill(1);
    else
      ++stranger.run;
    auto a = make(group), b = make(stranger);
    std::string why;
    std::vector<std::string> addresses{a->address(), b->address()};
    std::thread other([&] { why = refusal(*b, {addresses[0], ""}); });
    EXPECT_NE(refusal(*a, {"", addresses[1]}).find("process 1"), std::string::npos);
    other.join();
    EXPECT_NE(why.find("process 0"), std::string::npos) << why;
  }
}

TEST_P(EveryProcessTransport, WhoIsMissingIsNamed) {
  auto a = make(group_of(0, nullptr, 100)), silent = make(group_of(1, nullptr));
  EXPECT_NE(refusal(*a, {"", silent->address()}).find("process 1"), std::string::npos);
  std::string address = silent->address();
  silent.reset();
  auto b = make(group_of(0, nullptr, 100));
  EXPECT_NE(refusal(*b, {"", address}).find("process 1"), std::string::npos);
  auto c = make(group_of(0, nullptr, 100));
  EXPECT_NE(refusal(*c, {"", std::string(3000, '\xff')}).find("process 1"), std::string::npos);
  auto d = make(group_of(0, nullptr, 100));
  EXPECT_FALSE(refusal(*d, {address}).empty()) << "one address for each process";
}

// Nobody else is asked for: wires inside the process and to those reached otherwise are refused.
TEST_P(EveryProcessTransport, LeavesOutProcessesWithoutAnAddress) {
  auto transport = make(group_of(0, nullptr));
  transport->connect({"", ""});
  EXPECT_THROW(transport->open_sender(there, [](uint32_t) {}), Error);
  EXPECT_FALSE(transport->poll());
}

TEST_P(EveryProcessTransport, FourProcessesMeetAll) {
  constexpr int count = 4;
  Losses losses;
  std::vector<std::unique_ptr<ProcessTransport>> all;
  std::vector<std::string> addresses;
  for (int p = 0; p < count; ++p) {
    ProcessGroup group = group_of(p, &losses);
    group.processes = count;
    group.process_of_rank = {0, 1, 2, 3};
    all.push_back(make(group));
    addresses.push_back(all.back()->address());
  }
  std::vector<std::thread> threads;
  for (int p = 0; p < count; ++p)
    threads.emplace_back([&, p] {
      auto others = addresses;
      others[size_t(p)].clear();
      EXPECT_EQ(refusal(*all[size_t(p)], others), "");
    });
  for (auto& thread : threads) thread.join();
  std::array<Queue<Arrival>, count> arrivals;
  for (int from = 0; from < count; ++from)
    for (int to = 0; to < count; ++to) {
      if (from == to) continue;
      Wire wire{.id = uint32_t(from * count + to), .from_rank = from, .to_rank = to, .slots = 1, .bytes_max = 8};
      all[size_t(to)]->open_receiver(wire, [&, to](const Arrival& arrival) { arrivals[size_t(to)].post(arrival); });
      all[size_t(from)]->open_sender(wire, [](uint32_t) {});
      all[size_t(from)]->send(wire.id, 0, SlotHeader{.sequence = from}, nullptr, 0, nullptr);
    }
  for (int to = 0; to < count; ++to) {
    int64_t sum = 0;
    for (int i = 0; i + 1 < count; ++i) sum += arrivals[size_t(to)].take().header.sequence;
    EXPECT_EQ(sum, 6 - to);
  }
  for (auto& transport : all) transport->close();
  EXPECT_EQ(losses.size(), 0u);
}

size_t entries_of(const char* folder) {
  return size_t(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST_P(EveryProcessTransport, FiftyCyclesLeaveNothing) {
  size_t descriptors = 0, threads = 0, names = 0;
  for (int cycle = 0; cycle < 50; ++cycle) {
    testing::Ends ends(GetParam());
    Queue<Arrival> arrivals;
    ends.at(1).open_receiver(there, [&](const Arrival& arrival) { arrivals.post(arrival); });
    ends.at(0).open_sender(there, [](uint32_t) {});
    ends.at(0).send(there.id, 0, {}, ends.memory(0, 5000), 5000, nullptr);
    arrivals.take();
    size_t now[] = {entries_of("/proc/self/fd"), entries_of("/proc/self/task"), entries_of("/dev/shm")};
    if (cycle == 2) descriptors = now[0], threads = now[1], names = now[2];
    if (cycle > 2) {
      ASSERT_LE(now[0], descriptors) << cycle;
      ASSERT_LE(now[1], threads) << cycle;
      ASSERT_LE(now[2], names) << cycle;
    }
    ends.close();
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, EveryProcessTransport, ::testing::ValuesIn(between_processes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sluice
