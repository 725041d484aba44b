// SPDX-License-Identifier: Apache-2.0
#include "comm/change.h"

#include <algorithm>

namespace sluice {

// A dim that an inner axis splits already would move that axis's slices, so it is passed over. Among the others the
// one with the most even pieces wins, then the outermost (its pieces are contiguous).
std::optional<PlacedType> scattered(const PlacedType& from, const std::vector<bool>& stays) {
  std::vector<size_t> axes;
  int64_t ways = 1;
  for (size_t a = 0; a < from.sbp.size(); ++a)
    if (from.sbp[a].is_partial() && !stays[a]) {
      axes.push_back(a);
      ways *= from.mesh->axes[a].size;
    }
  if (axes.empty()) return std::nullopt;
  std::vector<int64_t> bound = local_bound(from.type.shape, from.sbp, *from.mesh);
  int best = -1;
  for (size_t d = 0; d < bound.size(); ++d) {
    bool inner = std::any_of(from.sbp.begin() + int64_t(axes.front()), from.sbp.end(),
                             [&](Sbp sbp) { return sbp == Sbp::split(int(d)); });
    int64_t units = bound[d] / from.type.shape[d].granule;
    if (inner || units < ways) continue;
    if (best < 0 || (units % ways == 0 && bound[size_t(best)] / from.type.shape[size_t(best)].granule % ways != 0))
      best = int(d);
  }
  if (best < 0) return std::nullopt;
  PlacedType scattered = from;
  for (size_t a : axes) scattered.sbp[a] = Sbp::split(best);
  return scattered;
}

}  // namespace sluice
