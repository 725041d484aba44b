// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/outgoing.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::ucx {
namespace {

constexpr uint64_t chunk_bytes = 100;

class OutgoingTest : public ::testing::Test {
 protected:
  std::vector<uint32_t> released_;
  OutWire big_{{.id = 1, .slots = 2, .bytes_max = 1000}, 1, [this](uint32_t slot) { released_.push_back(slot); }};
  OutWire small_{{.id = 2, .slots = 2, .bytes_max = 1000}, 1, [](uint32_t) {}};
  Outgoing out_{chunk_bytes};

  Transfer& send(OutWire& wire, uint32_t slot, uint64_t bytes) {
    Transfer& transfer = wire.slots[slot].transfer;
    wire.slots[slot].busy = true;
    transfer.bytes = bytes;
    out_.add(transfer);
    return transfer;
  }
  std::shared_ptr<Refresh> refresh(OutWire& wire, uint32_t slot, uint64_t bytes) {
    auto it = std::make_shared<Refresh>();
    it->wire = &wire;
    it->slot = slot;
    it->bytes = bytes;
    it->self = it;
    out_.add(*it);
    return it;
  }
  // "1.0 2.0": chunk 0 of wire 1, then of wire 2.
  std::string next(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      auto chunk = out_.next();
      if (!chunk) return text + "-";
      text += std::to_string(chunk->transfer->wire->wire.id) + "." + std::to_string(chunk->index) + " ";
    }
    return text;
  }
};

TEST_F(OutgoingTest, WiresTakeTurns) {
  send(big_, 0, 350);
  send(big_, 1, 100);
  EXPECT_EQ(next(1), "1.0 ");
  send(small_, 0, 0);
  EXPECT_EQ(next(9), "1.1 2.0 1.2 1.3 1.0 -");
}

TEST_F(OutgoingTest, ACreditIsBackWhenReleasedAndNothingIsUnderWay) {
  Transfer& transfer = send(big_, 0, 150);
  EXPECT_NE(out_.release(big_, {1, 0, 0}), "") << "not all of it is sent";
  next(2);
  out_.landed(transfer);
  EXPECT_EQ(out_.release(big_, {1, 0, 0}), "");
  EXPECT_TRUE(released_.empty());
  out_.landed(transfer);
  EXPECT_EQ(released_, std::vector<uint32_t>{0});
  EXPECT_FALSE(big_.slots[0].busy);
}

TEST_F(OutgoingTest, RefusesCreditsThatCannotBe) {
  EXPECT_NE(out_.release(big_, {1, 2, 0}), "") << "no such slot";
  EXPECT_NE(out_.release(big_, {1, 0, 0}), "") << "never sent";
  Transfer& transfer = send(big_, 0, 10);
  next(1);
  out_.landed(transfer);
  EXPECT_NE(out_.release(big_, {1, 0, 1}), "") << "another token";
  EXPECT_NE(out_.release(big_, {1, 1, 0}), "") << "another slot";
  EXPECT_EQ(out_.release(big_, {1, 0, 0}), "");
  EXPECT_NE(out_.release(big_, {1, 0, 0}), "") << "twice";
  big_.slots[0].busy = true;  // sent again, and the task not yet taken
  EXPECT_NE(out_.release(big_, {1, 0, 0}), "");
  EXPECT_NE(out_.refreshed(big_, 0, 0), "") << "nothing was refreshed";
  EXPECT_EQ(released_.size(), 1u);
}

TEST_F(OutgoingTest, ARefreshWaitsForItsWireOnly) {
  Transfer& first = send(big_, 0, 150);
  auto it = refresh(big_, 1, 150);
  send(small_, 0, 0);
  EXPECT_EQ(next(9), "1.0 2.0 1.1 -");
  out_.landed(first);
  EXPECT_EQ(next(9), "-");
  out_.landed(first);
  EXPECT_NE(out_.refreshed(big_, 1, 0), "") << "it is not sent";
  EXPECT_EQ(next(9), "1.0 1.1 -");
  EXPECT_NE(out_.refreshed(big_, 0, 0), "");
  EXPECT_EQ(out_.refreshed(big_, 1, 0), "");
  out_.landed(*it);
  out_.landed(*it);
  EXPECT_EQ(it->wait(), "");
  EXPECT_EQ(it.use_count(), 1);
}

TEST_F(OutgoingTest, AfterALossRefreshesFailAndNothingIsReleased) {
  Transfer& transfer = send(big_, 0, 10);
  next(1);
  EXPECT_EQ(out_.release(big_, {1, 0, 0}), "");
  auto before = refresh(big_, 1, 10);
  out_.fail("gone");
  EXPECT_EQ(before->wait(), "gone");
  EXPECT_EQ(refresh(big_, 1, 10)->wait(), "gone");
  out_.landed(transfer);
  EXPECT_TRUE(released_.empty());
}

}  // namespace
}  // namespace sluice::ucx
