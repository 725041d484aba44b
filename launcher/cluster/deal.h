// SPDX-License-Identifier: Apache-2.0
// Which worker runs which ranks of a plan.
// Invariants: ranks lie in contiguous blocks, and those of a host side by side; no worker gets more than it has free.
// Thread rule: pure functions.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace sluice {

struct Seat {  // a worker as the dealer sees it
  int number = 0;
  std::string host;
  int devices = 0;  // 0: any number of ranks
  int taken = 0;    // by other clients
  int runs = 0;     // that it takes part in
};

struct Hand {
  int number = 0;
  int ranks = 0;
};

// In the order of processes; nothing: not enough is free now. Where there are fewer ranks than workers, those with the
// fewest runs take them.
std::optional<std::vector<Hand>> deal(std::vector<Seat> seats, int ranks);
// Why these workers can never run it; "": they can, once they are free.
std::string never(const std::vector<Seat>& seats, int ranks);

}  // namespace sluice
