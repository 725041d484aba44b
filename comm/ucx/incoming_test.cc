// SPDX-License-Identifier: Apache-2.0
// What peers send is input: whatever the header says, it lands inside its slot, once and in order, or is refused.
#include "comm/ucx/incoming.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace sluice::ucx {
namespace {

constexpr uint64_t chunk_bytes = 100;
constexpr Wire wire{.id = 4, .from_rank = 1, .to_rank = 0, .slots = 3, .bytes_max = 250};

MessageHeader data(uint32_t slot, uint64_t sequence, uint64_t total, uint32_t chunk, uint16_t flags = 0) {
  MessageHeader header{.sequence = sequence, .total = total, .wire = wire.id, .slot = slot, .chunk = chunk};
  header.kind = Kind::data;
  header.flags = flags;
  header.bytes = uint32_t(bytes_of_chunk(total, chunk_bytes, chunk));
  return header;
}

class Incoming : public ::testing::Test {
 protected:
  std::vector<std::pair<uint32_t, int64_t>> arrivals_;  // slot, sequence
  std::vector<uint32_t> refreshes_;
  InWire in_{wire, 1, chunk_bytes, [this](const Arrival& arrival) {
               if (arrival.refresh)
                 refreshes_.push_back(arrival.slot);
               else
                 arrivals_.push_back({arrival.slot, arrival.header.sequence});
             }};

  // "": it landed; else why not.
  std::string take(const MessageHeader& header) {
    SlotWords words{.sequence = int64_t(header.sequence)};
    std::string why;
    InSlot* slot = in_.admit(header, header.chunk == 0 ? &words : nullptr, why);
    EXPECT_EQ(slot == nullptr, !why.empty());
    if (slot) in_.land(*slot);
    return why;
  }
  void give_back(uint32_t slot) { in_.clear(in_.give_back(slot)); }
};

TEST_F(Incoming, ChunksComeInAnyOrderAndArrivalsInTheirs) {
  EXPECT_EQ(take(data(2, 0, 250, 2)), "");
  EXPECT_EQ(take(data(0, 1, 0, 0)), "");
  EXPECT_EQ(take(data(2, 0, 250, 0)), "");
  EXPECT_TRUE(arrivals_.empty()) << "the second waits for the first";
  EXPECT_EQ(take(data(2, 0, 250, 1)), "");
  EXPECT_EQ(arrivals_, (std::vector<std::pair<uint32_t, int64_t>>{{2, 0}, {0, 1}}));
}

TEST_F(Incoming, RefusesWhatDoesNotFit) {
  EXPECT_NE(take(data(3, 0, 10, 0)), "") << "no such slot";
  EXPECT_NE(take(data(0, 0, 251, 0)), "") << "larger than a slot";
  EXPECT_NE(take(data(0, 0, uint64_t(-1), 0)), "");
  EXPECT_NE(take(data(0, 3, 10, 0)), "") << "beyond the credits";
  EXPECT_NE(take(data(0, uint64_t(-1), 10, 0)), "");
  MessageHeader beyond = data(0, 0, 250, 2);
  beyond.chunk = 3;
  EXPECT_NE(take(beyond), "");
  beyond.chunk = uint32_t(-1);
  EXPECT_NE(take(beyond), "");
  MessageHeader longer = data(0, 0, 250, 2);
  longer.bytes = 100;
  EXPECT_NE(take(longer), "") << "past the end of the slot";
  std::string why;
  EXPECT_EQ(in_.admit(data(0, 0, 10, 0), nullptr, why), nullptr) << "a first chunk without its slot's header";
  EXPECT_EQ(take(data(0, 0, 10, 0)), "") << "and after all that the wire still works";
  EXPECT_EQ(arrivals_.size(), 1u);
}

TEST_F(Incoming, RefusesWhatCameBefore) {
  EXPECT_EQ(take(data(0, 0, 250, 1)), "");
  EXPECT_NE(take(data(0, 0, 250, 1)), "") << "a chunk twice";
  EXPECT_NE(take(data(1, 0, 250, 0)), "") << "a token in two slots";
  EXPECT_NE(take(data(0, 1, 250, 0)), "") << "another token in the slot that is filling";
  EXPECT_NE(take(data(0, 0, 240, 0)), "") << "another size";
  EXPECT_NE(take(data(0, 0, 250, 0, flag_refresh)), "") << "a refresh of what is filling";
  EXPECT_EQ(take(data(0, 0, 250, 0)), "");
  EXPECT_EQ(take(data(0, 0, 250, 2)), "");
  EXPECT_NE(take(data(0, 1, 10, 0)), "") << "a slot that the consumer holds";
  EXPECT_NE(take(data(1, 0, 10, 0)), "") << "a token of the past";
  give_back(0);
  EXPECT_NE(take(data(0, 0, 10, 0)), "");
  EXPECT_EQ(take(data(0, 1, 10, 0)), "");
}

TEST_F(Incoming, RefreshesWhateverTheSlotHolds) {
  EXPECT_EQ(take(data(1, 0, 250, 1, flag_refresh)), "");
  EXPECT_NE(take(data(1, 0, 250, 0)), "") << "a token in the slot that is refreshed";
  EXPECT_EQ(take(data(1, 0, 250, 2, flag_refresh)), "");
  EXPECT_EQ(take(data(1, 0, 250, 0, flag_refresh)), "");
  EXPECT_EQ(take(data(1, 0, 10, 0)), "");
  EXPECT_NE(take(data(1, 0, 10, 0, flag_refresh)), "") << "the first refresh again";
  EXPECT_EQ(take(data(1, 1, 10, 0, flag_refresh)), "");
  EXPECT_EQ(refreshes_, (std::vector<uint32_t>{1, 1}));
  EXPECT_EQ(arrivals_.size(), 1u);
  give_back(1);
}

TEST_F(Incoming, GivingBackWhatIsNotHeldStops) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(in_.give_back(0), "was not sent");
  EXPECT_DEATH(in_.give_back(99), "was not sent");
}

TEST_F(Incoming, WiresLargerThanMemoryAreRefused) {
  auto none = [](const Arrival&) {};
  EXPECT_THROW(InWire({.id = 1, .slots = 1u << 31, .bytes_max = SIZE_MAX / 4}, 1, chunk_bytes, none), Error);
  EXPECT_THROW(InWire({.id = 1, .slots = 1, .bytes_max = SIZE_MAX}, 1, chunk_bytes, none), Error);
}

// Random headers near the truth: what is admitted lies in its slot, and nothing that is held is written.
TEST_F(Incoming, RandomHeadersDoNoHarm) {
  std::mt19937 random(20240611);
  auto pick = [&](uint64_t n) { return random() % n; };
  std::vector<bool> held(wire.slots);
  std::vector<MessageHeader> last(wire.slots);
  constexpr uint64_t totals[] = {0, 120, 250};
  size_t seen = 0, admitted = 0;
  for (int i = 0; i < 200'000; ++i) {
    bool refresh = pick(4) == 0;
    MessageHeader header = data(uint32_t(pick(4)), refresh ? refreshes_.size() : arrivals_.size() + pick(4) - 1,
                                totals[pick(3)], uint32_t(pick(4)), refresh ? flag_refresh : 0);
    if (pick(2) == 0) {  // more of what was begun
      const MessageHeader& begun = last[pick(wire.slots)];
      header = data(begun.slot, begun.sequence, begun.total, uint32_t(pick(3)), begun.flags);
    }
    if (pick(16) == 0) header.bytes = random();
    if (pick(16) == 0) header.sequence = random();
    SlotWords words{.sequence = int64_t(header.sequence)};
    std::string why;
    InSlot* slot = in_.admit(header, header.chunk == 0 ? &words : nullptr, why);
    if (slot) {
      ++admitted;
      last[header.slot] = header;
      EXPECT_FALSE(held[header.slot] && !(header.flags & flag_refresh));
      EXPECT_LE(in_.place_of(*slot, header) + header.bytes, slot->memory + wire.bytes_max);
      in_.land(*slot);
    }
    for (; seen < arrivals_.size(); ++seen) {
      EXPECT_EQ(arrivals_[seen].second, int64_t(seen));
      held[arrivals_[seen].first] = true;
    }
    uint32_t back = uint32_t(pick(3));
    if (held[back] && pick(2) == 0) {
      give_back(back);
      held[back] = false;
    }
  }
  EXPECT_GT(admitted, 1000u);
  EXPECT_GT(arrivals_.size(), 100u);
  EXPECT_GT(refreshes_.size(), 100u);
}

}  // namespace
}  // namespace sluice::ucx
