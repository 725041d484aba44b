// SPDX-License-Identifier: Apache-2.0
#include "comm/hop.h"

#include "base/error.h"

namespace sluice {

namespace {

bool same_axes(const Mesh& a, const Mesh& b) {
  if (a.axes.size() != b.axes.size()) return false;
  for (size_t i = 0; i < a.axes.size(); ++i)
    if (a.axes[i].size != b.axes[i].size) return false;
  return true;
}

// On aligned meshes. Pieces nest outer first, so only an outer axis can move the slices of this one.
bool slices_stay(const NdSbp& from, const NdSbp& to, size_t axis) {
  if (from[axis] != to[axis]) return false;
  for (size_t outer = 0; outer < axis; ++outer)
    if (from[outer] != to[outer] && (from[outer] == from[axis] || to[outer] == from[axis])) return false;
  return true;
}

Take take_of(const NdSbp& from, const NdSbp& to, bool aligned, size_t axis) {
  if (from[axis].kind == Sbp::B) return Take::replica;
  if (!aligned) return Take::all;
  if (from[axis].is_partial()) return from[axis] == to[axis] ? Take::mine : Take::all;
  bool pads = to[axis].kind == Sbp::P;  // every rank puts its own slice among zeros: the sum is the value
  return pads || slices_stay(from, to, axis) ? Take::mine : Take::all;
}

}  // namespace

bool same_place(const Mesh& a, const Mesh& b) { return a.first_rank == b.first_rank && same_axes(a, b); }

Window bound_window(const Shape& shape) {
  Window window;
  for (auto& dim : shape)
    if (dim.sym != fixed_sym) {
      window.valid[size_t(dim.sym)] = {0, dim.size / dim.granule};
      window.whole[size_t(dim.sym)] = dim.size / dim.granule;
    }
  return window;
}

Hop::Hop(const PlacedType& from, const PlacedType& to)
    : from_mesh_(*from.mesh), to_mesh_(*to.mesh), from_(from.sbp), to_(to.sbp) {
  check(from_.size() == from_mesh_.axes.size() && to_.size() == to_mesh_.axes.size(),
        "a placed type has one SBP entry per mesh axis");
  aligned_ = same_axes(from_mesh_, to_mesh_);
  bool reduces = false;
  for (size_t a = 0; a < from_.size(); ++a) {
    take_.push_back(take_of(from_, to_, aligned_, a));
    if (take_[a] != Take::all || !from_[a].is_partial()) continue;
    if (reduces && from_[a].kind != reduce_)
      throw Error(Code::value, "a move from " + text_of(from_) + " to " + text_of(to_) + " mixes kinds of reduction",
                  {}, "reduce one kind after the other");
    reduces = true;
    reduce_ = from_[a].kind;
  }
  // A destination P(max) or P(min) may hold equal copies, so it is served like B.
  for (size_t a = 0; a < to_.size(); ++a)
    only_first_.push_back(to_[a].kind == Sbp::P && !(aligned_ && take_[a] == Take::mine));
}

std::optional<std::vector<std::optional<int>>> Hop::wanted(int rank) const {
  std::vector<int> me = to_mesh_.coords(rank);
  for (size_t a = 0; a < me.size(); ++a)
    if (only_first_[a] && me[a] != 0) return std::nullopt;
  // Replicas: my own copy where I hold one, else the one at my coordinates, else spread over the destinations.
  std::vector<int> held;
  if (from_mesh_.holds(rank)) held = from_mesh_.coords(rank);
  int spread = rank - to_mesh_.first_rank;
  std::vector<std::optional<int>> wanted(take_.size());
  for (size_t a = take_.size(); a-- > 0;) {
    if (take_[a] == Take::mine) wanted[a] = me[a];
    if (take_[a] != Take::replica) continue;
    int size = from_mesh_.axes[a].size;
    wanted[a] = !held.empty() ? held[a] : aligned_ ? me[a] : spread % size;
    spread /= size;
  }
  return wanted;
}

std::vector<int> Hop::peers(int rank) const {
  auto want = wanted(rank);
  if (!want) return {};
  std::vector<int> at(want->size());
  for (size_t a = 0; a < at.size(); ++a) at[a] = (*want)[a].value_or(0);
  std::vector<int> ranks;
  for (bool more = true; more;) {  // row-major over the "all" axes: ranks ascend
    ranks.push_back(from_mesh_.rank_at(at));
    more = false;
    for (size_t a = at.size(); a-- > 0 && !more;) {
      if ((*want)[a]) continue;
      more = ++at[a] < from_mesh_.axes[a].size;
      if (!more) at[a] = 0;
    }
  }
  return ranks;
}

bool Hop::hears(int rank, int peer) const {
  auto want = wanted(rank);
  if (!want) return false;
  std::vector<int> at = from_mesh_.coords(peer);
  for (size_t a = 0; a < at.size(); ++a)
    if ((*want)[a] && *(*want)[a] != at[a]) return false;
  return true;
}

}  // namespace sluice
