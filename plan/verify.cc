// SPDX-License-Identifier: Apache-2.0
#include "plan/verify.h"

namespace sluice {

void verify(const Plan& plan, const OpTable& ops) {
  verify_types(plan, ops);
  verify_rates(plan);
  verify_liveness(plan);
  verify_memory(plan, ops);
}

}  // namespace sluice
