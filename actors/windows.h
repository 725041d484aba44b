// SPDX-License-Identifier: Apache-2.0
// What depends on the window only: local dims, origins, exchange programs. Kept per micro-batch for the two batch
// sizes that alternate (a full batch and an epoch's last one), so that a steady state computes nothing anew.
// Thread rule: one thread.
#pragma once
#include <array>
#include <vector>

#include "actors/parts.h"

namespace sluice {

template <class Program>
class Windows {
 public:
  explicit Windows(uint32_t micros) : entries_(micros) {}

  // The program for this firing; `make(program)` fills a new one.
  template <class Make>
  Program& get(const Firing& firing, Make&& make) {
    auto& pair = entries_[firing.micro];
    for (auto& entry : pair.ways)
      if (entry.known && entry.extent == firing.extent) return entry.program;
    auto& entry = pair.ways[pair.next];
    pair.next ^= 1;
    entry.known = false;  // while `make` may throw
    entry.program = Program();
    make(entry.program);
    entry.extent = firing.extent;
    entry.known = true;
    return entry.program;
  }

 private:
  struct Entry {
    bool known = false;
    Extents extent{};
    Program program;
  };
  struct Pair {
    std::array<Entry, 2> ways;
    uint32_t next = 0;
  };
  std::vector<Pair> entries_;
};

// The window of token `micro` of `micros` a step.
inline Window window_at(const Firing& firing, uint32_t micro, uint32_t micros) {
  SlotHeader header;
  header.micro_batch = int32_t(micro);
  header.micro_batches = int32_t(micros);
  header.extent = firing.extent;
  return window_of(header);
}

}  // namespace sluice
