// SPDX-License-Identifier: Apache-2.0
// How the ranks of one hop find each other. Per source axis a destination rank hears from its own coordinate, from
// all coordinates, or from one replica; which of the three follows from the SBPs, never from sizes.
//
//   meshes are *aligned* when their axes have the same sizes (the same mesh, or two pipeline stages of one shape):
//   then an axis is kept where both sides have one entry and no outer axis that changes splits the same dim.
// Thread rule: values.
#pragma once
#include <optional>
#include <vector>

#include "comm/move.h"

namespace sluice {

enum class Take : uint8_t {
  mine,     // the source at my own coordinate (a kept axis, or my slice padded with zeros)
  all,      // every coordinate: their parts concatenate (S) or reduce (P)
  replica,  // one of equal copies (B)
};

class Hop {
 public:
  Hop(const PlacedType& from, const PlacedType& to);

  // The source coordinates that `rank` of to.mesh hears from, each a value or nullopt for "all"; nothing at all when
  // the rank's part of a P value is zero.
  std::optional<std::vector<std::optional<int>>> wanted(int rank) const;
  std::vector<int> peers(int rank) const;
  bool hears(int rank, int peer) const;
  Sbp::Kind reduce() const { return reduce_; }

 private:
  const Mesh& from_mesh_;
  const Mesh& to_mesh_;
  NdSbp from_, to_;
  bool aligned_ = false;
  std::vector<Take> take_;        // per source axis
  std::vector<bool> only_first_;  // per destination axis: the value lies on coordinate 0, zeros elsewhere
  Sbp::Kind reduce_ = Sbp::P;
};

// Both meshes have the same axes over the same ranks.
bool same_place(const Mesh& a, const Mesh& b);
// The whole bound of every symbol, as one window.
Window bound_window(const Shape& shape);

}  // namespace sluice
