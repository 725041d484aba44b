// SPDX-License-Identifier: Apache-2.0
#include "placement/mesh.h"

#include "base/error.h"

namespace sluice {

int Mesh::size() const {
  int n = 1;
  for (auto& axis : axes) n *= axis.size;
  return n;
}

std::vector<int> Mesh::coords(int rank) const {
  check(holds(rank), "a rank's coordinates are asked of a mesh that does not hold it");
  std::vector<int> at(axes.size());
  int rest = rank - first_rank;
  for (size_t a = axes.size(); a-- > 0;) {
    at[a] = rest % axes[a].size;
    rest /= axes[a].size;
  }
  return at;
}

int Mesh::rank_at(const std::vector<int>& at) const {
  int rank = 0;
  for (size_t a = 0; a < axes.size(); ++a) rank = rank * axes[a].size + at[a];
  return first_rank + rank;
}

int Mesh::axis(std::string_view wanted) const {
  for (size_t a = 0; a < axes.size(); ++a)
    if (axes[a].name == wanted) return int(a);
  return -1;
}

}  // namespace sluice
