// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <algorithm>

namespace sluice {

int Plan::ranks() const {
  int ranks = 0;
  for (auto& cls : classes) ranks = std::max(ranks, cls.mesh.first_rank + cls.mesh.size());
  return ranks;
}

}  // namespace sluice
