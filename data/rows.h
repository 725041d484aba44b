// SPDX-License-Identifier: Apache-2.0
// What readers share.
#pragma once
#include <span>

#include "data/reader.h"

namespace sluice {

// Throws Error(index) on a field or a row that the reader does not have.
void check_rows(const Reader& reader, int field, std::span<const int64_t> rows);

}  // namespace sluice
