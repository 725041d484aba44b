// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "comm/hop.h"

namespace sluice {

namespace {

// The common part of two boxes; false when it is empty.
bool intersect(const Box& a, const Box& b, Box& common) {
  common.dims.resize(a.dims.size());
  for (size_t d = 0; d < a.dims.size(); ++d) {
    int64_t begin = std::max(a.dims[d].begin, b.dims[d].begin);
    int64_t end = std::min(a.dims[d].begin + a.dims[d].size, b.dims[d].begin + b.dims[d].size);
    if (end <= begin) return false;
    common.dims[d] = {begin, end - begin};
  }
  return true;
}

std::vector<Range> within(const Box& part, const Box& whole) {
  std::vector<Range> ranges;
  for (size_t d = 0; d < part.dims.size(); ++d)
    ranges.push_back({part.dims[d].begin - whole.dims[d].begin, part.dims[d].size});
  return ranges;
}

std::vector<int64_t> dims_of(const Box& box) {
  std::vector<int64_t> dims;
  for (auto& range : box.dims) dims.push_back(range.size);
  return dims;
}

}  // namespace

int64_t Piece::numel() const {
  int64_t n = 1;
  for (auto& range : to) n *= range.size;
  return n;
}

std::vector<int> peers_of(const PlacedType& from, const PlacedType& to, int rank) { return Hop(from, to).peers(rank); }

std::vector<int> listeners_of(const PlacedType& from, const PlacedType& to, int rank) {
  Hop hop(from, to);
  std::vector<int> listeners;
  for (int other = to.mesh->first_rank; to.mesh->holds(other); ++other)
    if (hop.hears(other, rank)) listeners.push_back(other);
  return listeners;
}

// Parts of a source cell (one combination of its split axes) cover one region of the destination; cells are disjoint,
// and the parts of one cell differ in partial axes only. So a region is copied once, by its first peer.
Exchange exchange_of(const PlacedType& from, const PlacedType& to, int rank, const Window& window) {
  const Shape& shape = to.type.shape;
  Hop hop(from, to);
  Box mine = local_box(shape, to.sbp, *to.mesh, to.mesh->coords(rank), window);
  Exchange result;
  result.dims = dims_of(mine);
  int64_t copied = 0;
  Box common;
  for (int peer : hop.peers(rank)) {
    Box theirs = local_box(shape, from.sbp, *from.mesh, from.mesh->coords(peer), window);
    if (!intersect(mine, theirs, common)) continue;
    Piece piece{.peer = peer, .reduce = hop.reduce(), .from = within(common, theirs), .to = within(common, mine)};
    for (auto& earlier : result.pieces) piece.add = piece.add || earlier.to == piece.to;
    piece.from_dims = dims_of(theirs);
    piece.to_dims = result.dims;
    if (!piece.add) copied += piece.numel();
    result.pieces.push_back(std::move(piece));
  }
  result.zero = copied < mine.numel();
  return result;
}

}  // namespace sluice
