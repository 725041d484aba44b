// SPDX-License-Identifier: Apache-2.0
#include "comm/packing.h"

#include <algorithm>

#include "base/error.h"
#include "comm/hop.h"

namespace sluice {
namespace {

// Splits are balanced, so a local dim never grows when the window shrinks; an overlap of two may, but not beyond
// either.
int64_t elements_max(const PackedHop& hop, int from_rank, int to_rank) {
  Window bound = bound_window(hop.to.type.shape);
  Box mine = local_box(hop.to.type.shape, hop.to.sbp, *hop.to.mesh, hop.to.mesh->coords(to_rank), bound);
  Box theirs = local_box(hop.to.type.shape, hop.from.sbp, *hop.from.mesh, hop.from.mesh->coords(from_rank), bound);
  int64_t elements = 1;
  for (size_t d = 0; d < mine.dims.size(); ++d) elements *= std::min(mine.dims[d].size, theirs.dims[d].size);
  return elements;
}

int64_t dense_at(const Piece& piece) {
  int64_t step = 1, begin = 0;
  bool whole = true;  // all inner dims are
  for (size_t d = piece.from.size(); d-- > 0;) {
    begin += piece.from[d].begin * step;
    if (!whole && piece.from[d].size != 1) return -1;
    whole = whole && piece.from[d].size == piece.from_dims[d];
    step *= piece.from_dims[d];
  }
  return begin;
}

}  // namespace

Piece swapped_last(Piece piece) {
  size_t n = piece.to.size();
  if (n < 2) return piece;
  std::swap(piece.from[n - 1], piece.from[n - 2]);
  std::swap(piece.to[n - 1], piece.to[n - 2]);
  std::swap(piece.from_dims[n - 1], piece.from_dims[n - 2]);
  std::swap(piece.to_dims[n - 1], piece.to_dims[n - 2]);
  return piece;
}

Packing::Packing(std::vector<PackedHop> hops, int from_rank, int to_rank)
    : hops_(std::move(hops)), from_rank_(from_rank), to_rank_(to_rank) {
  for (auto& hop : hops_) {
    offsets_.push_back(int64_t(bytes_max_));
    bytes_max_ += size_t((elements_max(hop, from_rank, to_rank) * sluice::bytes_of(hop.to.type.dtype) + 63) / 64 * 64);
  }
}

std::vector<PackedPiece> Packing::pieces(const Window& window) const {
  std::vector<PackedPiece> result;
  for (size_t h = 0; h < hops_.size(); ++h) {
    auto& hop = hops_[h];
    int64_t width = sluice::bytes_of(hop.to.type.dtype);
    for (auto& piece : exchange_of(hop.from, hop.to, to_rank_, window).pieces) {
      if (piece.peer != from_rank_) continue;
      PackedPiece packed;
      packed.hop = h;
      packed.unpack = hop.col ? swapped_last(piece) : piece;
      packed.pack = packed.unpack;
      packed.pack.add = false;
      packed.pack.to_dims.clear();
      for (auto& range : packed.pack.to) {
        range.begin = 0;
        packed.pack.to_dims.push_back(range.size);
      }
      packed.unpack.from = packed.pack.to;
      packed.unpack.from_dims = packed.pack.to_dims;
      packed.offset = offsets_[h];
      packed.bytes = piece.numel() * width;
      if (int64_t at = dense_at(packed.pack); at >= 0) packed.dense_at = at * width;
      check(packed.offset + packed.bytes <= (h + 1 < offsets_.size() ? offsets_[h + 1] : int64_t(bytes_max_)),
            "a packed piece is larger than its bound");
      result.push_back(std::move(packed));
    }
  }
  return result;
}

size_t Packing::bytes_of(const std::vector<PackedPiece>& pieces) {
  return pieces.empty() ? 0 : size_t(pieces.back().offset + pieces.back().bytes);
}

}  // namespace sluice
