// SPDX-License-Identifier: Apache-2.0
// The suite that every transport passes. A new transport is one more line in `transports`.
#include "comm/transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

struct TransportKind {
  const char* name;
  std::unique_ptr<Transport> (*make)();
};
constexpr TransportKind transports[] = {{"inproc", make_inproc}};

// What callbacks post to, and threads wait on.
template <class T>
class Queue {
 public:
  void post(T item) {
    std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    posted_.notify_one();
  }
  T take() {
    std::unique_lock lock(mutex_);
    posted_.wait(lock, [&] { return !items_.empty(); });
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  size_t size() {
    std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<T> items_;
};

class EveryTransport : public ::testing::TestWithParam<TransportKind> {
 protected:
  std::unique_ptr<Transport> transport_ = GetParam().make();
  Queue<Arrival> arrivals_;
  Queue<uint32_t> releases_;

  void open(const Wire& wire) {
    transport_->open_receiver(wire, [this](const Arrival& arrival) { arrivals_.post(arrival); });
    transport_->open_sender(wire, [this](uint32_t slot) { releases_.post(slot); });
  }
  void send(uint32_t wire, uint32_t slot, int64_t sequence, const std::vector<std::byte>& data) {
    SlotHeader header{.sequence = sequence, .bytes_valid = int64_t(data.size())};
    transport_->send(wire, slot, header, data.data(), data.size(), nullptr);
  }
};

TEST_P(EveryTransport, IsNamed) { EXPECT_EQ(transport_->name(), GetParam().name); }

TEST_P(EveryTransport, CarriesEverySizeAndTheHeader) {
  const std::vector<size_t> sizes{0, 1, 2, 7, 63, 64, 65, 4096, 65537, (size_t(1) << 20) + 1, size_t(64) << 20};
  open({.id = 9, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = size_t(64) << 20});
  int64_t sent = 0;
  for (size_t size : sizes) {
    std::vector<std::byte> data(size);
    for (size_t i = 0; i < size; ++i) data[i] = std::byte(i * 131 + size);
    SlotHeader header{.step = 3, .micro_batch = 1, .micro_batches = 4, .sequence = 5, .bytes_valid = int64_t(size)};
    header.epoch = 7;
    header.extent[batch_sym] = 11;
    transport_->send(9, 0, header, data.data(), size, nullptr);
    Arrival arrival = arrivals_.take();
    if (arrival.event) arrival.event->wait();
    EXPECT_EQ(std::tie(arrival.header.step, arrival.header.micro_batch, arrival.header.micro_batches),
              std::tie(header.step, header.micro_batch, header.micro_batches));
    EXPECT_EQ(std::tie(arrival.header.sequence, arrival.header.epoch, arrival.header.extent),
              std::tie(header.sequence, header.epoch, header.extent));
    EXPECT_EQ(arrival.header.bytes_valid, int64_t(size));
    EXPECT_EQ(arrival.slot, 0u);
    EXPECT_TRUE(size == 0 || std::memcmp(arrival.data, data.data(), size) == 0) << size;
    transport_->release(9, arrival.slot);
    EXPECT_EQ(releases_.take(), 0u);
    sent += int64_t(size);
  }
  EXPECT_EQ(transport_->bytes_sent(), sent);
}

TEST_P(EveryTransport, CountsBytesBetweenRanksOnly) {
  open({.id = 1, .from_rank = 2, .to_rank = 2, .slots = 1, .bytes_max = 100});
  send(1, 0, 0, std::vector<std::byte>(100));
  arrivals_.take();
  EXPECT_EQ(transport_->bytes_sent(), 0);
}

TEST_P(EveryTransport, ReleasesNameTheirSlotInAnyOrder) {
  open({.id = 5, .from_rank = 0, .to_rank = 1, .slots = 4, .bytes_max = 8});
  std::vector<std::byte> data(8);
  for (uint32_t slot : {2u, 0u, 3u, 1u}) send(5, slot, slot, data);
  for (uint32_t slot : {2u, 0u, 3u, 1u}) EXPECT_EQ(arrivals_.take().slot, slot) << "arrivals come in order";
  EXPECT_EQ(releases_.size(), 0u);
  for (uint32_t slot : {1u, 2u, 3u, 0u}) transport_->release(5, slot);
  std::vector<uint32_t> released;
  for (int i = 0; i < 4; ++i) released.push_back(releases_.take());
  std::sort(released.begin(), released.end());
  EXPECT_EQ(released, (std::vector<uint32_t>{0, 1, 2, 3}));
  send(5, 1, 9, data);  // the credit is back
  EXPECT_EQ(arrivals_.take().header.sequence, 9);
}

TEST_P(EveryTransport, RefusesIdsThatAreTakenAndEndsThatDiffer) {
  Wire wire{.id = 3, .from_rank = 0, .to_rank = 1, .slots = 2, .bytes_max = 8};
  open(wire);
  EXPECT_THROW(transport_->open_sender(wire, [](uint32_t) {}), Error);
  EXPECT_THROW(transport_->open_receiver(wire, [](const Arrival&) {}), Error);
  transport_->open_sender({.id = 4, .from_rank = 0, .to_rank = 1, .slots = 2, .bytes_max = 8}, [](uint32_t) {});
  EXPECT_THROW(transport_->open_receiver({.id = 4, .from_rank = 0, .to_rank = 2, .slots = 2, .bytes_max = 8},
                                         [](const Arrival&) {}),
               Error);
  EXPECT_THROW(transport_->open_receiver({.id = 4, .from_rank = 0, .to_rank = 1, .slots = 3, .bytes_max = 8},
                                         [](const Arrival&) {}),
               Error);
  EXPECT_THROW(transport_->open_sender({.id = 6, .slots = 0}, [](uint32_t) {}), Error);
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
  EXPECT_DEATH(send(77, 0, 2, {}), "before both its ends are open");
  transport_->release(8, 1);
  EXPECT_EQ(releases_.take(), 1u);
  EXPECT_DEATH(transport_->release(8, 1), "was not sent");
  EXPECT_DEATH(send(8, 1, 2, std::vector<std::byte>(9)), "more is sent than a slot");
  EXPECT_EQ(arrivals_.size(), 0u);
}

// The receiver holds every slot as long as it can; the sender never has more than its slots.
TEST_P(EveryTransport, ASlowReceiverHoldsTheSenderAtConstantMemory) {
  constexpr uint32_t slots = 3;
  constexpr int64_t messages = 5000;
  open({.id = 2, .from_rank = 0, .to_rank = 1, .slots = slots, .bytes_max = 8});
  for (uint32_t slot = 0; slot < slots; ++slot) releases_.post(slot);
  std::vector<std::vector<std::byte>> memory(slots, std::vector<std::byte>(8));
  std::atomic<int64_t> sent{0}, received{0};
  int64_t wrong = 0;
  std::thread sender([&] {
    for (int64_t i = 0; i < messages; ++i) {
      uint32_t slot = releases_.take();
      std::memcpy(memory[slot].data(), &i, 8);
      ++sent;
      send(2, slot, i, memory[slot]);
    }
  });
  for (int64_t i = 0; i < messages; ++i) {
    Arrival arrival = arrivals_.take();
    wrong += sent - received > int64_t(slots);
    int64_t value = -1;
    std::memcpy(&value, arrival.data, 8);
    wrong += value != i || arrival.header.sequence != i;
    ++received;
    transport_->release(2, arrival.slot);
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
    std::array<std::array<int64_t, 2>, slots> memory{};
    int64_t next = 0, expected = 0;
  };
  std::vector<End> ends(wires);
  std::array<Queue<std::pair<uint32_t, uint32_t>>, ranks> credits;  // (wire, slot)
  std::array<Queue<std::pair<uint32_t, Arrival>>, ranks> arrivals;
  for (uint32_t w = 0; w < wires; ++w) {
    int from = int(w % ranks), to = int(w / ranks % ranks);
    ends[w].wire = {.id = w * 2654435761u, .from_rank = from, .to_rank = to, .slots = slots, .bytes_max = 16};
    transport_->open_sender(ends[w].wire, [&, w, from](uint32_t slot) { credits[size_t(from)].post({w, slot}); });
    transport_->open_receiver(ends[w].wire, [&, w, to](const Arrival& arrival) {
      arrivals[size_t(to)].post({w, arrival});
    });
    for (uint32_t slot = 0; slot < slots; ++slot) credits[size_t(from)].post({w, slot});
  }
  auto send_all = [&](int rank) {
    for (int left = int(wires) / ranks * messages; left > 0;) {
      auto [w, slot] = credits[size_t(rank)].take();
      End& end = ends[w];
      if (end.next == messages) continue;  // its last credits come back
      end.memory[slot] = {int64_t(w), end.next};
      auto* data = reinterpret_cast<const std::byte*>(end.memory[slot].data());
      transport_->send(end.wire.id, slot, SlotHeader{.sequence = end.next++}, data, 16, nullptr);
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
      transport_->release(end.wire.id, arrival.slot);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(send_all, rank);
    threads.emplace_back(receive_all, rank);
  }
  for (auto& thread : threads) thread.join();
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(wrong[size_t(rank)], 0);
}

// Wires may be opened while others are used.
TEST_P(EveryTransport, OpensWiresWhileOthersRun) {
  open({.id = 0, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = 8});
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      send(0, 0, 0, {});
      transport_->release(0, arrivals_.take().slot);
      releases_.take();
    }
  });
  for (uint32_t id = 1; id < 2000; ++id)
    transport_->open_sender({.id = id, .from_rank = 0, .to_rank = 1, .slots = 1}, [](uint32_t) {});
  stop = true;
  busy.join();
}

TEST_P(EveryTransport, CloseWaitsForCallbacksAndEndsThem) {
  for (int round = 0; round < 8; ++round) {
    auto transport = GetParam().make();
    std::atomic<bool> closed{false}, late{false};
    std::atomic<int64_t> arrived{0}, done{0};
    constexpr int wires = 4;
    for (uint32_t id = 0; id < wires; ++id) {
      Wire wire{.id = id, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = 8};
      transport->open_sender(wire, [&](uint32_t) { late = late || closed; });
      transport->open_receiver(wire, [&](const Arrival&) {
        late = late || closed;
        ++arrived;
      });
    }
    std::vector<std::thread> threads;
    for (uint32_t id = 0; id < wires; ++id)
      threads.emplace_back([&, id] {
        for (int i = 0; !closed || i < 100; ++i) {
          transport->send(id, 0, {}, nullptr, 0, nullptr);
          transport->release(id, 0);
        }
        ++done;
      });
    while (arrived < 100) std::this_thread::yield();
    transport->close();
    closed = true;
    for (auto& thread : threads) thread.join();
    EXPECT_FALSE(late);
    EXPECT_EQ(done, wires);
    transport->close();  // again: nothing happens
    EXPECT_THROW(transport->open_sender({.id = 99, .slots = 1}, [](uint32_t) {}), Error);
  }
}

// The arrival's event is the sender's, or it is null and the data is there.
TEST_P(EveryTransport, HandsTheEventOn) {
  struct Done final : Event {
    bool done() const override { return true; }
    void wait() override {}
  };
  auto event = std::make_shared<Done>();
  open({.id = 1, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = 8});
  transport_->send(1, 0, {}, nullptr, 0, event);
  Arrival arrival = arrivals_.take();
  EXPECT_TRUE(!arrival.event || arrival.event == event);
}

INSTANTIATE_TEST_SUITE_P(Transports, EveryTransport, ::testing::ValuesIn(transports),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sluice
