// SPDX-License-Identifier: Apache-2.0
// Moves: a tensor changes its type (mesh, SBP) between producer and consumer. One MoveDef a file in comm/moves/.
//
// A move is a list of *hops*; each hop is one exchange: every destination rank builds its local part from pieces
// (boxes) of source ranks' parts, copying or adding them in a fixed order of peers, after zeroing where a P part has
// no share. A collective is hops: all_reduce = P -> S(d) -> B. Each hop becomes an actor on the destination ranks
// whose inputs are the sources' registers, so that credits, order and memory are the plan's like those of any op.
//
// Which peers a rank hears from follows from the SBPs and the coordinates only, never from sizes (so it is the same
// for every extent); a piece may be empty.
// Thread rule: pure functions.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "placement/sbp.h"

namespace sluice {

struct PlacedType {
  LogicalType type;
  const Mesh* mesh = nullptr;
  NdSbp sbp;
};

struct MoveCost {
  double bytes = 0;     // sent over links, summed over all ranks
  double messages = 0;  // pieces between different ranks, summed
};

struct MoveDef {
  std::string_view name, doc;
  // Whether this move can do from -> to (same logical type). Several may match: the cheapest in bytes wins, then the
  // fewest messages, then hops, then those that are no fallback, then the name.
  bool (*matches)(const PlacedType& from, const PlacedType& to) = nullptr;
  // The types after each hop but the last (that is `to`): empty for a one-hop move.
  std::vector<PlacedType> (*between)(const PlacedType& from, const PlacedType& to) = nullptr;
  bool fallback = false;  // loses every tie: the move that matches everything
};
std::span<const MoveDef* const> builtin_moves();

// The move for from -> to; never null: `exchange` matches everything.
const MoveDef& move_for(std::span<const MoveDef* const> moves, const PlacedType& from, const PlacedType& to);
// Cost of all hops of a move, from the pieces of the full extents.
MoveCost cost_of(const MoveDef& move, const PlacedType& from, const PlacedType& to);

// ---- one hop --------------------------------------------------------------------------------------------------------

// A box copied from a peer's local part into mine. Both are row-major dense with the given local dims.
struct Piece {
  int peer = 0;  // global rank
  bool add = false;
  Sbp::Kind reduce = Sbp::P;                // how `add` combines: sum, max or min
  std::vector<Range> from, to;              // ranges within the peer's and my local part, equal sizes
  std::vector<int64_t> from_dims, to_dims;  // local dims of both parts
  int64_t numel() const;
};

// The ranks that `rank` (of to.mesh) hears from, ascending; itself where it holds a share.
std::vector<int> peers_of(const PlacedType& from, const PlacedType& to, int rank);
// The ranks that hear from `rank` (of from.mesh).
std::vector<int> listeners_of(const PlacedType& from, const PlacedType& to, int rank);
// What each peer contributes for this window: pieces in ascending order of peer. `zero` is set when the destination
// must be cleared first (a part of it gets no copy, or nothing is received at all).
struct Exchange {
  std::vector<Piece> pieces;
  bool zero = false;
  std::vector<int64_t> dims;  // local dims of the destination part
};
Exchange exchange_of(const PlacedType& from, const PlacedType& to, int rank, const Window& window);
// Runs one piece on host memory; with DeviceStream::queue() it is enqueued there, on the device's.
void run_piece(const Piece& piece, DType dtype, const void* from, void* to, void* queue = nullptr);
void clear(void* memory, size_t bytes, void* queue = nullptr);
// Runs the pieces of an exchange in their order. Those that meet in one place are combined in one pass over it, so that
// memory is written once; the result is that of run_piece one by one, bit by bit.
struct PieceFrom {
  const Piece* piece = nullptr;
  const void* from = nullptr;
};
void run_pieces(std::span<const PieceFrom> pieces, DType dtype, void* to);

}  // namespace sluice
