// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/deal.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace sluice {
namespace {

int room(const Seat& seat, int ranks) {
  return seat.devices == 0 ? ranks : std::clamp(seat.devices - seat.taken, 0, ranks);
}

}  // namespace

std::optional<std::vector<Hand>> deal(std::vector<Seat> seats, int ranks) {
  std::erase_if(seats, [&](const Seat& seat) { return room(seat, ranks) == 0; });
  std::stable_sort(seats.begin(), seats.end(), [](auto& a, auto& b) { return a.runs < b.runs; });
  if (seats.size() > size_t(ranks)) seats.resize(size_t(ranks));
  std::sort(seats.begin(), seats.end(),
            [](auto& a, auto& b) { return std::tie(a.host, a.number) < std::tie(b.host, b.number); });
  std::vector<Hand> hands;
  for (auto& seat : seats) hands.push_back({seat.number, 0});
  // One each in turn, as from a pack of cards: as even as room allows.
  for (int left = ranks; left > 0;) {
    int before = left;
    for (size_t i = 0; i < hands.size() && left > 0; ++i)
      if (hands[i].ranks < room(seats[i], ranks)) ++hands[i].ranks, --left;
    if (left == before) return std::nullopt;
  }
  return hands;
}

std::string never(const std::vector<Seat>& seats, int ranks) {
  if (seats.empty()) return "the cluster has no workers";
  int64_t devices = 0;
  for (auto& seat : seats) {
    if (seat.devices == 0) return "";
    devices += seat.devices;
  }
  if (devices >= ranks) return "";
  return fmt::format("the plan needs {} devices, and the cluster's {} workers have {}", ranks, seats.size(), devices);
}

}  // namespace sluice
