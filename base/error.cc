// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace sluice {

void broken_invariant(std::string_view why, std::source_location where) {
  std::fprintf(stderr, "sluice: broken invariant: %.*s\n  in %s (%s:%u)\n", int(why.size()), why.data(),
               where.function_name(), where.file_name(), unsigned(where.line()));
  std::abort();
}

}  // namespace sluice
