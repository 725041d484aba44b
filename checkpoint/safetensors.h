// SPDX-License-Identifier: Apache-2.0
// Safetensors: a header of JSON and the tensors' bytes, as one file or as shards with an index.
//
//   | 8 bytes: header size N, little-endian | N bytes: JSON, padded with spaces | tensors, without gaps |
//
// A file is written whole or not at all. A file that is read is hostile until its whole header has been checked.
// Thread rule: a Checkpoint is constant after opening; writing is one thread's.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace sluice {

// A dense row-major tensor. The bytes belong to somebody else: the writer's caller, or the Checkpoint that was read.
// Bytes that were read may not be aligned to their type: copy them.
struct NamedArray {
  std::string name;
  DType dtype = DType::float32;
  std::vector<int64_t> dims;
  std::span<const std::byte> bytes;
};
using Metadata = std::map<std::string, std::string>;

class Checkpoint {
 public:
  // A file, or a folder with model.safetensors.index.json or model.safetensors. Files are mapped, not read: they must
  // not be changed in place while this lives (write_safetensors never does). Throws Error(not_found | io) that names
  // the file and its fault.
  explicit Checkpoint(const std::string& path);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::vector<NamedArray>& arrays() const { return arrays_; }  // by name
  const NamedArray* find(std::string_view name) const;               // null: there is none
  const Metadata& metadata() const { return metadata_; }             // of the file, or of the first shard

 private:
  class Mapping;
  void add_file(const std::string& path);
  void add_shards(const std::string& folder, const std::string& index);
  void sort_arrays(const std::string& path);

  std::vector<std::unique_ptr<Mapping>> files_;
  std::vector<NamedArray> arrays_;
  Metadata metadata_;
};

// Replaces the file at `path` atomically. Equal arrays and metadata give equal bytes, whatever their order.
// Throws Error(value) for names that are empty, reserved or not unique and for sizes that do not fit, Error(io) when
// the file cannot be written; then nothing is left behind.
void write_safetensors(const std::string& path, std::span<const NamedArray> arrays, const Metadata& metadata = {});

// One model.safetensors, or shards of at most `shard_bytes_max` (one tensor at least) and, last, their index.
// The folder must exist; give each save a folder of its own, since shards of an older one are not removed.
void write_sharded(const std::string& folder, std::span<const NamedArray> arrays, int64_t shard_bytes_max,
                   const Metadata& metadata = {});

// What the header of a safetensors file says, checked against `bytes`, the whole file. For Checkpoint and fuzzing.
struct SafetensorsHeader {
  std::vector<NamedArray> arrays;
  Metadata metadata;
};
SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, const std::string& path);

}  // namespace sluice
