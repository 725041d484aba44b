// SPDX-License-Identifier: Apache-2.0
// One IDX file (the format of MNIST): big-endian magic 0,0,type,dims; the sizes; then the bytes. Plain or gzip.
// Files are hostile: nothing is allocated for what the header claims before the bytes are there.
// Thread rule: pure but for the file system.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct IdxFile {
  std::vector<int64_t> dims;  // each at least 1
  std::vector<uint8_t> bytes;
};

// Throws Error(not_found | io) that names the file and its fault. A name that ends in .gz must hold gzip.
IdxFile read_idx(const std::string& path, size_t dims);

}  // namespace sluice
