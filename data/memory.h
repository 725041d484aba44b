// SPDX-License-Identifier: Apache-2.0
// A data set in memory: arrays that the caller handed over. No ReaderDef: bytes are no attribute of a plan.
// Thread rule: as every Reader.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "data/reader.h"

namespace sluice {

// Array i holds the rows of fields[i], densely. Throws Error(value) when a size does not fit or no row is there.
std::shared_ptr<const Reader> make_memory_reader(std::vector<Field> fields, std::vector<std::vector<std::byte>> arrays);

}  // namespace sluice
