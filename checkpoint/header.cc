// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: strict, because the file is hostile. Every key must be known and unique, the
// tensors must cover the file's bytes without gap or overlap.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/shape.h"
#include "checkpoint/json.h"
#include "checkpoint/names.h"
#include "checkpoint/safetensors.h"

namespace sluice {

namespace {

constexpr uint64_t header_bytes_max = 100'000'000;  // as the reference implementation

struct Entry {
  NamedArray array;
  uint64_t begin = 0, end = 0;
  std::set<std::string> keys;
};

// Depth 1: names; depth 2: the fields of a tensor or the metadata; depth 3: shape and offsets.
class HeaderReader final : public JsonReader {
 public:
  std::vector<Entry> entries;
  Metadata metadata;

  bool start_object(size_t) override {
    if (depth_ > 1) return refuse("an object is where none belongs");
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (depth_ == 2 && !in_metadata_ && entries.back().keys.size() != 3)
      return refuse(in_quotes(entries.back().array.name) + " lacks dtype, shape or data_offsets");
    if (--depth_ == 1) in_metadata_ = false;
    return true;
  }
  bool key(std::string& name) override {
    key_ = name;
    if (depth_ == 1) return start_entry(name);
    if (in_metadata_) return metadata.contains(name) ? refuse("the metadata has " + in_quotes(name) + " twice") : true;
    auto& entry = entries.back();
    if (name != "dtype" && name != "shape" && name != "data_offsets")
      return refuse(in_quotes(entry.array.name) + " has an unknown field " + in_quotes(name));
    return entry.keys.insert(name).second || refuse(in_quotes(entry.array.name) + " has " + in_quotes(name) + " twice");
  }
  bool string(std::string& text) override {
    if (depth_ != 2) return refuse("a text is where an object belongs");
    if (in_metadata_) {
      metadata.emplace(key_, text);
      return true;
    }
    auto& array = entries.back().array;
    if (key_ != "dtype") return refuse("the " + key_ + " of " + in_quotes(array.name) + " is no list");
    auto dtype = parse_safetensors_dtype(text);
    if (!dtype) return refuse("the dtype " + in_quotes(text) + " of " + in_quotes(array.name) + " is not supported");
    array.dtype = *dtype;
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || key_ == "dtype") return refuse("a list is where none belongs");
    depth_ = 3;
    offsets_ = 0;
    return true;
  }
  bool end_array() override {
    depth_ = 2;
    if (key_ == "data_offsets" && offsets_ != 2)
      return refuse("the data_offsets of " + in_quotes(entries.back().array.name) + " are not two numbers");
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (depth_ != 3) return refuse("a number is where none belongs");
    auto& entry = entries.back();
    if (key_ == "shape") {
      if (entry.array.dims.size() == rank_max || value > uint64_t(INT64_MAX))
        return refuse("the shape of " + in_quotes(entry.array.name) + " has too many dims or elements");
      entry.array.dims.push_back(int64_t(value));
    } else if (++offsets_ <= 2) {
      (offsets_ == 1 ? entry.begin : entry.end) = value;
    }
    return true;
  }

 private:
  bool start_entry(const std::string& name) {
    in_metadata_ = name == "__metadata__";
    if (!names_.insert(name).second) return refuse(in_quotes(name) + " is there twice");
    if (name.empty()) return refuse("a tensor has no name");
    if (!in_metadata_) entries.push_back({.array = {.name = name}});
    return true;
  }

  int depth_ = 0, offsets_ = 0;
  bool in_metadata_ = false;
  std::string key_;
  std::set<std::string> names_;
};

// "" or what is wrong with the place of one tensor; `at` is where the one before it ended.
std::string fault_of(const Entry& entry, uint64_t at, uint64_t bytes) {
  uint64_t size = uint64_t(bytes_of(entry.array.dtype));
  for (int64_t dim : entry.array.dims)
    if (__builtin_mul_overflow(size, uint64_t(dim), &size)) return "has too many elements";
  if (entry.begin > entry.end || entry.end > bytes) return "lies outside the file";
  if (entry.end - entry.begin != size)
    return "takes " + std::to_string(entry.end - entry.begin) + " bytes where its shape and dtype need " +
           std::to_string(size);
  if (entry.begin < at) return "overlaps another tensor";
  if (entry.begin > at) return "leaves a gap before it";
  return "";
}

bool bools_are_bools(const NamedArray& array) {
  return array.dtype != DType::bool_ ||
         std::all_of(array.bytes.begin(), array.bytes.end(), [](std::byte b) { return uint8_t(b) <= 1; });
}

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, const std::string& path) {
  auto fault = [&](const std::string& what) {
    return Error(Code::io, path + " is no safetensors file: " + what, {}, "write or fetch the file again");
  };
  if (bytes.size() < 8) throw fault("it has only " + std::to_string(bytes.size()) + " bytes");
  uint64_t header_bytes = 0;
  for (size_t i = 8; i-- > 0;) header_bytes = header_bytes << 8 | uint8_t(bytes[i]);
  if (header_bytes > header_bytes_max || header_bytes > bytes.size() - 8)
    throw fault("its header claims " + std::to_string(header_bytes) + " bytes");
  HeaderReader reader;
  auto text = std::string_view(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
  if (!text.starts_with('{')) throw fault("its header does not start with '{'");
  std::string problem = reader.read(text);
  if (!problem.empty()) throw fault(problem);
  std::span<const std::byte> data = bytes.subspan(8 + header_bytes);
  // Empty tensors may share their begin with the one that follows.
  std::sort(reader.entries.begin(), reader.entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.array.name) < std::tie(b.begin, b.end, b.array.name);
  });
  SafetensorsHeader header{.metadata = std::move(reader.metadata)};
  uint64_t at = 0;
  for (auto& entry : reader.entries) {
    std::string wrong = fault_of(entry, at, data.size());
    if (!wrong.empty()) throw fault(in_quotes(entry.array.name) + " " + wrong);
    at = entry.end;
    entry.array.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    if (!bools_are_bools(entry.array))
      throw fault(in_quotes(entry.array.name) + " holds bools that are neither 0 nor 1");
    header.arrays.push_back(std::move(entry.array));
  }
  if (at != data.size()) throw fault(std::to_string(data.size() - at) + " bytes at its end belong to no tensor");
  return header;
}

}  // namespace sluice
