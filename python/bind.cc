// SPDX-License-Identifier: Apache-2.0
// The module `_sluice`: what the package `sluice` is written on.
#include <fmt/format.h>

#include "python/convert.h"

NB_MODULE(_sluice, m) {
  using namespace sluice;
  register_errors(m);
  bind_expr(m);
  bind_job(m);
  bind_data(m);
  bind_cluster(m);
}
