// SPDX-License-Identifier: Apache-2.0
// Lowering: a plan becomes devices, memory, registers, streams and actors for every rank of this process. Everything
// is arithmetic on ranks and coordinates; wires between ranks are numbered in the order of (consumer, port, peer) over
// all ranks, so every process that knows the plan numbers them alike.
// Thread rule: built and destroyed by the client's thread.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "actors/body.h"
#include "actors/outlet.h"
#include "actors/stream.h"

namespace sluice {

struct Lowered {
  std::vector<std::unique_ptr<Site>> sites;  // by rank; null: in another process
  std::vector<std::unique_ptr<Outlet>> outlets;
  std::vector<std::shared_ptr<const Reader>> sources;
  std::map<std::pair<int, int>, std::unique_ptr<Register>> registers;  // by (register, rank)
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Actor>> actors;
  std::vector<Actor*> gated;
  // Constants that ranks of other processes read: no tap of the register, as no token ever flows.
  struct Announced {
    Register* reg = nullptr;
    Tap tap;
  };
  std::vector<Announced> constants;

  Register* find(int reg, int rank) const {
    auto found = registers.find({reg, rank});
    return found == registers.end() ? nullptr : found->second.get();
  }
  ~Lowered();
};

// Throws Error: a broken plan, no memory, a missing data file. The transports get their wires.
std::unique_ptr<Lowered> lower(World& world, const FloorTables& tables);

}  // namespace sluice
