// SPDX-License-Identifier: Apache-2.0
// Who waits for whom: the report of a stall. Built from the states of all actors when nothing moves any more.
// Thread rule: pure functions of values.
#pragma once
#include <string>
#include <vector>

namespace sluice {

// Actor `actor` cannot fire until actor `on` does something; `why` continues the sentence "ACTOR waits for".
struct Wait {
  int actor = 0, on = 0;
  std::string why;
};

// One cycle of waits as text, a line an actor; where there is none, the longest chain from the first waiting actor to
// one that waits for nobody. Empty when nobody waits.
std::string wait_cycle(const std::vector<std::string>& names, const std::vector<Wait>& waits);

}  // namespace sluice
