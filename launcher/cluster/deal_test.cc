// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/deal.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace sluice {
namespace {

std::string text_of(const std::optional<std::vector<Hand>>& hands) {
  if (!hands) return "none";
  std::string text;
  for (auto& hand : *hands) text += std::to_string(hand.number) + ":" + std::to_string(hand.ranks) + " ";
  return text;
}

TEST(Deal, IsEvenAndKeepsAHostTogether) {
  std::vector<Seat> seats{{0, "b"}, {1, "a"}, {2, "b"}};
  EXPECT_EQ(text_of(deal(seats, 3)), "1:1 0:1 2:1 ");
  EXPECT_EQ(text_of(deal(seats, 7)), "1:3 0:2 2:2 ");
  EXPECT_EQ(text_of(deal(seats, 1)), "0:1 ");
  EXPECT_EQ(text_of(deal({}, 1)), "none");
}

TEST(Deal, FewRanksGoToTheIdle) {
  std::vector<Seat> seats{{0, "a", 0, 0, 2}, {1, "a", 0, 0, 0}, {2, "a", 0, 0, 1}};
  EXPECT_EQ(text_of(deal(seats, 1)), "1:1 ");
  EXPECT_EQ(text_of(deal(seats, 2)), "1:1 2:1 ");
}

TEST(Deal, NobodyGetsMoreThanHeHas) {
  std::vector<Seat> seats{{0, "a", 1}, {1, "a", 4}, {2, "a", 4, 3}};
  EXPECT_EQ(text_of(deal(seats, 6)), "0:1 1:4 2:1 ");
  EXPECT_EQ(text_of(deal(seats, 7)), "none");
  EXPECT_EQ(never(seats, 9), "");
  EXPECT_NE(never(seats, 10), "");
  EXPECT_NE(never({}, 1), "");
  seats.push_back({3, "z", 0});
  EXPECT_EQ(never(seats, 1000), "");
  EXPECT_EQ(text_of(deal(seats, 8)), "0:1 1:3 2:1 3:3 ");
}

TEST(Deal, HoldsForAnySeats) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::vector<Seat> seats(random() % 6);
    int ranks = 1 + int(random() % 20), free = 0;
    for (size_t s = 0; s < seats.size(); ++s) {
      seats[s] = {int(s), std::string(1, char('a' + random() % 3)), int(random() % 5), int(random() % 3),
                  int(random() % 3)};
      free += seats[s].devices == 0 ? ranks : std::max(0, seats[s].devices - seats[s].taken);
    }
    auto hands = deal(seats, ranks);
    ASSERT_EQ(hands.has_value(), free >= ranks);
    int all = 0;
    std::map<std::string, int> hosts;
    std::string last;
    for (auto& hand : hands.value_or(std::vector<Hand>{})) {
      auto& seat = seats[size_t(hand.number)];
      all += hand.ranks;
      EXPECT_GT(hand.ranks, 0);
      if (seat.devices > 0) {
        EXPECT_LE(hand.ranks, seat.devices - seat.taken);
      }
      if (seat.host != last) {
        EXPECT_EQ(hosts[seat.host]++, 0);
      }
      last = seat.host;
    }
    if (hands) {
      EXPECT_EQ(all, ranks);
    }
  }
}

}  // namespace
}  // namespace sluice
