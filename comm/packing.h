// SPDX-License-Identifier: Apache-2.0
// What one rank sends to another for one register, when the receiver does not see the sender's memory: the pieces that
// the receiver's moves want of it, one after the other. Both ends compute the same from plan and window.
//
//   sender's slot [ tensor a | tensor b ]  --pack-->  message [ piece of a | pad | piece of b ]  --unpack--> the move
//
// Invariants: a piece starts at the same offset for every window, and bytes_max() holds for every window.
// Thread rule: values.
#pragma once
#include <vector>

#include "comm/move.h"

namespace sluice {

// One hop that reads the register.
struct PackedHop {
  PlacedType from, to;
  int64_t from_offset = 0;  // of the tensor within the sender's slot, bytes
  bool col = false;         // both parts have their last two dims swapped in memory
};

struct PackedPiece {
  size_t hop = 0;
  Piece pack;          // from the sender's part into a dense message part
  Piece unpack;        // from there into the receiver's part
  int64_t offset = 0;  // in the message, bytes
  int64_t bytes = 0;
  // Where the piece lies without gaps in the sender's part, bytes from its start; -1: it has gaps.
  int64_t dense_at = -1;
};

class Packing {
 public:
  Packing(std::vector<PackedHop> hops, int from_rank, int to_rank);
  const std::vector<PackedHop>& hops() const { return hops_; }
  size_t bytes_max() const { return bytes_max_; }
  std::vector<PackedPiece> pieces(const Window& window) const;
  // How long the message of these pieces is.
  static size_t bytes_of(const std::vector<PackedPiece>& pieces);

 private:
  std::vector<PackedHop> hops_;
  int from_rank_, to_rank_;
  std::vector<int64_t> offsets_;
  size_t bytes_max_ = 0;
};

// The piece with the last two dims swapped on both sides: how it lies in memory in layout "col".
Piece swapped_last(Piece piece);

}  // namespace sluice
