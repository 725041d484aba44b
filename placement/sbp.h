// SPDX-License-Identifier: Apache-2.0
// The SBP algebra (OneFlow, arXiv 2110.15032). On one mesh axis of n ranks a tensor is
//   S(d)  split along dim d in balanced pieces (bounded dims are split in units of their granule),
//   B     the same copy everywhere,
//   P     the logical value is the elementwise *sum* of the local parts (Pmax, Pmin exist inside the plan only).
// An NdSbp has one entry per mesh axis. When several axes split one dim they do it in the mesh's order, outer first.
// Thread rule: values.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "placement/mesh.h"

namespace sluice {

struct Sbp {
  enum Kind : uint8_t { S, B, P, Pmax, Pmin } kind = B;
  int8_t dim = -1;  // of S only
  static constexpr Sbp split(int d) { return {S, int8_t(d)}; }
  static constexpr Sbp broadcast() { return {B, -1}; }
  static constexpr Sbp partial() { return {P, -1}; }
  bool is_split() const { return kind == S; }
  bool is_partial() const { return kind >= P; }
  auto operator<=>(const Sbp&) const = default;
};
using NdSbp = std::vector<Sbp>;

std::string text_of(Sbp sbp);               // "S(0)", "B", "P", "P(max)", "P(min)"
std::string text_of(const NdSbp& nd);       // "(S(0),B)"
Sbp parse_sbp(std::string_view text);       // throws Error
NdSbp parse_nd_sbp(std::string_view text);  // throws Error

// The box of the logical tensor that the rank at `coords` holds, in the coordinates of the *window* (a bounded dim
// runs from 0 to granule * window.valid.size). `origin` gets, per dim, where the window starts in the whole batch.
struct Box {
  std::vector<Range> dims;
  int64_t numel() const {
    int64_t n = 1;
    for (auto& d : dims) n *= d.size;
    return n;
  }
  bool operator==(const Box&) const = default;
};
Box local_box(const Shape& shape, const NdSbp& sbp, const Mesh& mesh, const std::vector<int>& coords,
              const Window& window);
std::vector<int64_t> window_origin(const Shape& shape, const Window& window);
// The largest local sizes over all ranks and all extents within the bound: what memory is planned for.
std::vector<int64_t> local_bound(const Shape& shape, const NdSbp& sbp, const Mesh& mesh);

}  // namespace sluice
