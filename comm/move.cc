// SPDX-License-Identifier: Apache-2.0
#include "comm/move.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "comm/hop.h"

namespace sluice {

namespace {

// The exact bytes of one hop, without building its pieces: planners ask for thousands of them.
MoveCost cost_of_hop(const PlacedType& from, const PlacedType& to) {
  Hop hop(from, to);
  const Shape& shape = to.type.shape;
  Window window = bound_window(shape);
  std::vector<Box> parts;
  for (int peer = from.mesh->first_rank; from.mesh->holds(peer); ++peer)
    parts.push_back(local_box(shape, from.sbp, *from.mesh, from.mesh->coords(peer), window));
  MoveCost cost;
  for (int rank = to.mesh->first_rank; to.mesh->holds(rank); ++rank) {
    Box mine = local_box(shape, to.sbp, *to.mesh, to.mesh->coords(rank), window);
    for (int peer : hop.peers(rank)) {
      if (peer == rank) continue;
      auto& theirs = parts[size_t(peer - from.mesh->first_rank)].dims;
      int64_t elements = 1;
      for (size_t d = 0; d < mine.dims.size(); ++d) {
        int64_t begin = std::max(mine.dims[d].begin, theirs[d].begin);
        int64_t end = std::min(mine.dims[d].begin + mine.dims[d].size, theirs[d].begin + theirs[d].size);
        elements *= std::max<int64_t>(end - begin, 0);
      }
      cost.bytes += double(elements) * double(bytes_of(to.type.dtype));
      cost.messages += elements > 0;
    }
  }
  return cost;
}

std::vector<PlacedType> hops_of(const MoveDef& move, const PlacedType& from, const PlacedType& to) {
  std::vector<PlacedType> types{from};
  if (move.between)
    for (auto& type : move.between(from, to)) types.push_back(type);
  types.push_back(to);
  return types;
}

}  // namespace

MoveCost cost_of(const MoveDef& move, const PlacedType& from, const PlacedType& to) {
  std::vector<PlacedType> types = hops_of(move, from, to);
  MoveCost cost;
  for (size_t i = 0; i + 1 < types.size(); ++i) {
    MoveCost hop = cost_of_hop(types[i], types[i + 1]);
    cost.bytes += hop.bytes;
    cost.messages += hop.messages;
  }
  return cost;
}

const MoveDef& move_for(std::span<const MoveDef* const> moves, const PlacedType& from, const PlacedType& to) {
  using Order = std::tuple<double, double, size_t, bool, std::string_view>;
  std::optional<std::pair<Order, const MoveDef*>> best;
  for (auto* move : moves) {
    if (!move->matches(from, to)) continue;
    MoveCost cost = cost_of(*move, from, to);
    Order order{cost.bytes, cost.messages, hops_of(*move, from, to).size(), move->fallback, move->name};
    if (!best || order < best->first) best = {order, move};
  }
  check(best.has_value(), "the table of moves lacks `exchange`, which matches everything");
  return *best->second;
}

}  // namespace sluice
