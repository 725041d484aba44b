// SPDX-License-Identifier: Apache-2.0
// The suite that every transport passes. A new transport is one more line in `transports`, or in `between_processes`,
// whose members pass the suite of their own in process_transport_test.cc too.
#include "comm/transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "comm/testing.h"

namespace sluice {
namespace {

using testing::Ends;
using testing::Queue;
using testing::TransportKind;

constexpr TransportKind transports[] = {
    {"inproc", make_inproc}, {"shm", nullptr, make_shm}, {"ucx", nullptr, [](const ProcessGroup& group) {
                                                            return make_ucx(group, "");
                                                          }}};

// Rank 0 sends to rank 1: the same transport, or two that are connected.
class EveryTransport : public ::testing::TestWithParam<TransportKind> {
 protected:
  Ends ends_{GetParam()};
  Transport& sender_ = ends_.at(0);
  Transport& receiver_ = ends_.at(1);
  Queue<Arrival> arrivals_;
  Queue<uint32_t> releases_;

  ~EveryTransport() override { ends_.close(); }
  void open(const Wire& wire) {
    receiver_.open_receiver(wire, [this](const Arrival& arrival) { arrivals_.post(arrival); });
    sender_.open_sender(wire, [this](uint32_t slot) { releases_.post(slot); });
  }
  void send(uint32_t wire, uint32_t slot, int64_t sequence, const std::vector<std::byte>& data) {
    std::byte* memory = ends_.memory(0, data.size());
    std::copy(data.begin(), data.end(), memory);
    SlotHeader header{.sequence = sequence, .bytes_valid = int64_t(data.size())};
    sender_.send(wire, slot, header, memory, data.size(), nullptr);
  }
};

TEST_P(EveryTransport, IsNamed) { EXPECT_EQ(sender_.name(), GetParam().name); }

TEST_P(EveryTransport, CarriesEverySizeAndTheHeader) {
  const std::vector<size_t> sizes{0, 1, 2, 7, 63, 64, 65, 4096, 65537, (size_t(1) << 20) + 1, size_t(64) << 20};
  open({.id = 9, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = size_t(64) << 20});
  int64_t sent = 0;
  std::byte* data = ends_.memory(0, sizes.back());
  for (size_t size : sizes) {
    for (size_t i = 0; i < size; ++i) data[i] = std::byte(i * 131 + size);
    SlotHeader header{.step = 3, .micro_batch = 1, .micro_batches = 4, .sequence = 5, .bytes_valid = int64_t(size)};
    header.epoch = 7;
    header.extent[batch_sym] = 11;
    sender_.send(9, 0, header, data, size, nullptr);
    Arrival arrival = arrivals_.take();
    if (arrival.event) arrival.event->wait();
    EXPECT_EQ(std::tie(arrival.header.step, arrival.header.micro_batch, arrival.header.micro_batches),
              std::tie(header.step, header.micro_batch, header.micro_batches));
    EXPECT_EQ(std::tie(arrival.header.sequence, arrival.header.epoch, arrival.header.extent),
              std::tie(header.sequence, header.epoch, header.extent));
    EXPECT_EQ(arrival.header.bytes_valid, int64_t(size));
    EXPECT_EQ(arrival.slot, 0u);
    EXPECT_TRUE(size == 0 || std::memcmp(arrival.data, data, size) == 0) << size;
    receiver_.release(9, arrival.slot);
    EXPECT_EQ(releases_.take(), 0u);
    sent += int64_t(size);
  }
  EXPECT_EQ(sender_.bytes_sent(), sent);
}

TEST_P(EveryTransport, CountsBytesBetweenRanksOnly) {
  if (ends_.apart()) {  // a rank does not send to itself through another process
    Wire wire{.id = 1, .from_rank = 2, .to_rank = 2, .slots = 1, .bytes_max = 100};
    EXPECT_THROW(sender_.open_sender(wire, [](uint32_t) {}), Error);
    return;
  }
  open({.id = 1, .from_rank = 2, .to_rank = 2, .slots = 1, .bytes_max = 100});
  send(1, 0, 0, std::vector<std::byte>(100));
  arrivals_.take();
  EXPECT_EQ(sender_.bytes_sent(), 0);
}

TEST_P(EveryTransport, ReleasesNameTheirSlotInAnyOrder) {
  open({.id = 5, .from_rank = 0, .to_rank = 1, .slots = 4, .bytes_max = 8});
  std::vector<std::byte> data(8);
  for (uint32_t slot : {2u, 0u, 3u, 1u}) send(5, slot, slot, data);
  for (uint32_t slot : {2u, 0u, 3u, 1u}) EXPECT_EQ(arrivals_.take().slot, slot) << "arrivals come in order";
  EXPECT_EQ(releases_.size(), 0u);
  for (uint32_t slot : {1u, 2u, 3u, 0u}) receiver_.release(5, slot);
  std::vector<uint32_t> released;
  for (int i = 0; i < 4; ++i) released.push_back(releases_.take());
  std::sort(released.begin(), released.end());
  EXPECT_EQ(released, (std::vector<uint32_t>{0, 1, 2, 3}));
  send(5, 1, 9, data);  // the credit is back
  EXPECT_EQ(arrivals_.take().header.sequence, 9);
}

TEST_P(EveryTransport, RefusesIdsThatAreTakenAndEndsThatDiffer) {
  auto nothing = [](uint32_t) {};
  auto nobody = [](const Arrival&) {};
  Wire wire{.id = 3, .from_rank = 0, .to_rank = 1, .slots = 2, .bytes_max = 8};
  open(wire);
  EXPECT_THROW(sender_.open_sender(wire, nothing), Error);
  EXPECT_THROW(receiver_.open_receiver(wire, nobody), Error);
  EXPECT_THROW(sender_.open_sender({.id = 6, .from_rank = 0, .to_rank = 1, .slots = 0}, nothing), Error);
  if (ends_.apart()) {  // each process knows its own end only
    EXPECT_THROW(sender_.open_sender({.id = 6, .from_rank = 1, .to_rank = 0, .slots = 1}, nothing), Error);
    EXPECT_THROW(receiver_.open_receiver({.id = 6, .from_rank = 1, .to_rank = 0, .slots = 1}, nobody), Error);
    EXPECT_THROW(sender_.open_sender({.id = 6, .from_rank = 0, .to_rank = 9, .slots = 1}, nothing), Error);
  } else {
    sender_.open_sender({.id = 4, .from_rank = 0, .to_rank = 1, .slots = 2, .bytes_max = 8}, nothing);
    Wire other_rank{.id = 4, .from_rank = 0, .to_rank = 2, .slots = 2, .bytes_max = 8};
    Wire more_slots{.id = 4, .from_rank = 0, .to_rank = 1, .slots = 3, .bytes_max = 8};
    EXPECT_THROW(receiver_.open_receiver(other_rank, nobody), Error);
    EXPECT_THROW(receiver_.open_receiver(more_slots, nobody), Error);
  }
  send(3, 0, 0, {});  // and the first wire still works
  EXPECT_EQ(arrivals_.take().slot, 0u);
}

// A sender that has no credit has nothing that it may send; if it tries, the process stops.
TEST_P(EveryTransport, NothingArrivesWithoutACredit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  open({.id = 8, .from_rank = 0, .to_rank = 1, .slots = 2, .bytes_max = 8});
  send(8, 0, 0, {});
  send(8, 1, 1, {});
  arrivals_.take();
  arrivals_.take();
  EXPECT_DEATH(send(8, 0, 2, {}), "without a credit");
  EXPECT_DEATH(send(8, 2, 2, {}), "without a credit");
  EXPECT_DEATH(send(77, 0, 2, {}), "is used before");
  receiver_.release(8, 1);
  EXPECT_EQ(releases_.take(), 1u);
  EXPECT_DEATH(receiver_.release(8, 1), "was not sent");
  EXPECT_DEATH(send(8, 1, 2, std::vector<std::byte>(9)), "more is sent than a slot");
  EXPECT_EQ(arrivals_.size(), 0u);
}

// The receiver holds every slot as long as it can; the sender never has more than its slots.
TEST_P(EveryTransport, ASlowReceiverHoldsTheSenderAtConstantMemory) {
  constexpr uint32_t slots = 3;
  constexpr int64_t messages = 5000;
  open({.id = 2, .from_rank = 0, .to_rank = 1, .slots = slots, .bytes_max = 8});
  for (uint32_t slot = 0; slot < slots; ++slot) releases_.post(slot);
  std::byte* memory = ends_.memory(0, slots * 8);
  std::atomic<int64_t> sent{0}, received{0};
  int64_t wrong = 0;
  std::thread sender([&] {
    for (int64_t i = 0; i < messages; ++i) {
      uint32_t slot = releases_.take();
      std::memcpy(memory + slot * 8, &i, 8);
      ++sent;
      sender_.send(2, slot, SlotHeader{.sequence = i}, memory + slot * 8, 8, nullptr);
    }
  });
  for (int64_t i = 0; i < messages; ++i) {
    Arrival arrival = arrivals_.take();
    wrong += sent - received > int64_t(slots);
    int64_t value = -1;
    std::memcpy(&value, arrival.data, 8);
    wrong += value != i || arrival.header.sequence != i;
    ++received;
    receiver_.release(2, arrival.slot);
  }
  sender.join();
  EXPECT_EQ(wrong, 0);
}

// 1,000 wires among 4 ranks, each rank one sending and one receiving thread: order holds on every wire.
TEST_P(EveryTransport, InterleavesAThousandWires) {
  constexpr uint32_t wires = 1000, slots = 2;
  constexpr int ranks = 4, messages = 20;
  struct End {
    Wire wire;
    std::byte* memory = nullptr;
    int64_t next = 0, expected = 0;
  };
  std::vector<End> ends(wires);
  std::array<Queue<std::pair<uint32_t, uint32_t>>, ranks> credits;  // (wire, slot)
  std::array<Queue<std::pair<uint32_t, Arrival>>, ranks> arrivals;
  for (uint32_t w = 0; w < wires; ++w) {
    int from = int(w % ranks), to = int(w / ranks % ranks);
    if (ends_.apart() && from % 2 == to % 2) to ^= 1;  // of two processes: between them
    ends[w].memory = ends_.memory(from, slots * 16);
    ends[w].wire = {.id = w * 2654435761u, .from_rank = from, .to_rank = to, .slots = slots, .bytes_max = 16};
    ends_.at(from).open_sender(ends[w].wire, [&, w, from](uint32_t slot) { credits[size_t(from)].post({w, slot}); });
    ends_.at(to).open_receiver(ends[w].wire, [&, w, to](const Arrival& arrival) {
      arrivals[size_t(to)].post({w, arrival});
    });
    for (uint32_t slot = 0; slot < slots; ++slot) credits[size_t(from)].post({w, slot});
  }
  auto send_all = [&](int rank) {
    for (int left = int(wires) / ranks * messages; left > 0;) {
      auto [w, slot] = credits[size_t(rank)].take();
      End& end = ends[w];
      if (end.next == messages) continue;  // its last credits come back
      std::array<int64_t, 2> said{int64_t(w), end.next};
      std::byte* data = end.memory + slot * 16;
      std::memcpy(data, said.data(), 16);
      ends_.at(rank).send(end.wire.id, slot, SlotHeader{.sequence = end.next++}, data, 16, nullptr);
      --left;
    }
  };
  std::array<int, ranks> wrong{};
  auto receive_all = [&](int rank) {
    int count = 0;
    for (auto& end : ends) count += end.wire.to_rank == rank ? messages : 0;
    for (; count > 0; --count) {
      auto [w, arrival] = arrivals[size_t(rank)].take();
      std::array<int64_t, 2> got{};
      std::memcpy(got.data(), arrival.data, 16);
      End& end = ends[w];
      wrong[size_t(rank)] += got[0] != int64_t(w) || got[1] != end.expected || arrival.header.sequence != end.expected;
      ++end.expected;
      ends_.at(rank).release(end.wire.id, arrival.slot);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(send_all, rank);
    threads.emplace_back(receive_all, rank);
  }
  for (auto& thread : threads) thread.join();
  ends_.close();  // the last credits are still on their way to `credits`
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(wrong[size_t(rank)], 0);
}

// Wires may be opened while others are used.
TEST_P(EveryTransport, OpensWiresWhileOthersRun) {
  open({.id = 0, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = 8});
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      send(0, 0, 0, {});
      receiver_.release(0, arrivals_.take().slot);
      releases_.take();
    }
  });
  for (uint32_t id = 1; id < 2000; ++id)
    sender_.open_sender({.id = id, .from_rank = 0, .to_rank = 1, .slots = 1}, [](uint32_t) {});
  stop = true;
  busy.join();
}

TEST_P(EveryTransport, CloseWaitsForCallbacksAndEndsThem) {
  struct Traffic {
    std::atomic<bool> credit{true}, arrived{false};
  };
  for (int round = 0; round < 8; ++round) {
    Ends ends(GetParam());
    constexpr int wires = 4;
    std::array<Traffic, wires> traffic;
    std::atomic<bool> closed{false}, late{false};
    std::atomic<int64_t> arrived{0};
    for (uint32_t id = 0; id < wires; ++id) {
      Wire wire{.id = id, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = 8};
      ends.at(0).open_sender(wire, [&, id](uint32_t) {
        late = late || closed;
        traffic[id].credit = true;
      });
      ends.at(1).open_receiver(wire, [&, id](const Arrival&) {
        late = late || closed;
        ++arrived;
        traffic[id].arrived = true;
      });
    }
    std::vector<std::thread> threads;
    for (uint32_t id = 0; id < wires; ++id)
      threads.emplace_back([&, id] {
        while (!closed) {
          if (traffic[id].credit.exchange(false)) ends.at(0).send(id, 0, {}, nullptr, 0, nullptr);
          if (traffic[id].arrived.exchange(false))
            ends.at(1).release(id, 0);
          else
            std::this_thread::yield();
        }
        for (int i = 0; i < 100; ++i) {
          ends.at(0).send(id, 0, {}, nullptr, 0, nullptr);
          ends.at(1).release(id, 0);
        }
      });
    while (arrived < 100) std::this_thread::yield();
    ends.close();
    closed = true;
    for (auto& thread : threads) thread.join();
    EXPECT_FALSE(late);
    ends.close();  // again: nothing happens
    EXPECT_THROW(ends.at(0).open_sender({.id = 99, .from_rank = 0, .to_rank = 1, .slots = 1}, [](uint32_t) {}), Error);
  }
}

// What a slot holds is replaced, before it was ever sent and while the receiver holds it, and costs no credit.
TEST_P(EveryTransport, RefreshReplacesASlotWithoutACredit) {
  open({.id = 4, .from_rank = 0, .to_rank = 1, .slots = 2, .bytes_max = 8});
  std::byte* memory = ends_.memory(0, 8);
  auto refresh = [&](int64_t value) {
    std::memcpy(memory, &value, 8);
    sender_.refresh(4, 1, SlotHeader{.sequence = value, .bytes_valid = 8}, memory, 8);
    ASSERT_EQ(arrivals_.size(), 1u) << "the receiver has it when refresh returns";
    Arrival arrival = arrivals_.take();
    int64_t got = 0;
    std::memcpy(&got, arrival.data, 8);
    EXPECT_EQ(std::tie(got, arrival.header.sequence), std::tie(value, value));
    EXPECT_TRUE(arrival.refresh);
    EXPECT_EQ(arrival.slot, 1u);
  };
  refresh(41);
  sender_.send(4, 1, SlotHeader{.sequence = 5}, memory, 8, nullptr);
  EXPECT_FALSE(arrivals_.take().refresh);
  refresh(42);
  receiver_.release(4, 1);
  EXPECT_EQ(releases_.take(), 1u);
  refresh(43);
  EXPECT_EQ(releases_.size(), 0u);
}

// Workers that spin take arrivals themselves, and none is left behind when they stop.
TEST_P(EveryTransport, SpinningWorkersMissNothing) {
  open({.id = 4, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = 8});
  std::atomic<bool> stop{false};
  auto spin = [&](Transport& transport) {
    while (!stop) {
      transport.spin(true);
      for (int i = 0; i < 100; ++i) transport.poll();
      transport.spin(false);
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (int rank : {0, 1, 1}) threads.emplace_back(spin, std::ref(ends_.at(rank)));
  std::byte* memory = ends_.memory(0, 8);
  for (int64_t i = 0; i < 2000; ++i) {
    sender_.send(4, 0, SlotHeader{.sequence = i}, memory, 8, nullptr);
    EXPECT_EQ(arrivals_.take().header.sequence, i);
    receiver_.release(4, 0);
    releases_.take();
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

// The arrival's event is the sender's, or it is null and the data is there.
TEST_P(EveryTransport, HandsTheEventOn) {
  struct Done final : Event {
    bool done() const override { return true; }
    void wait() override {}
  };
  auto event = std::make_shared<Done>();
  open({.id = 1, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = 8});
  sender_.send(1, 0, {}, nullptr, 0, event);
  Arrival arrival = arrivals_.take();
  EXPECT_TRUE(!arrival.event || arrival.event == event);
}

INSTANTIATE_TEST_SUITE_P(Transports, EveryTransport, ::testing::ValuesIn(transports),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sluice
