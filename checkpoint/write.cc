// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/shape.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/names.h"
#include "checkpoint/safetensors.h"

namespace sluice {

namespace {

using Arrays = std::vector<const NamedArray*>;

// JSON text of a string. Throws Error when it is no UTF-8.
std::string json_of(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(Code::value, "the name or text " + in_quotes(text) + " is no UTF-8, so no file can hold it");
  }
}

void check_array(const NamedArray& array) {
  if (array.name.empty() || array.name == "__metadata__")
    throw Error(Code::value, "a tensor cannot be saved as " + in_quotes(array.name), {}, "give it another name");
  if (array.dims.size() > size_t(rank_max))
    throw Error(Code::value, in_quotes(array.name) + " has more than " + std::to_string(rank_max) + " dims");
  int64_t bytes = 0;
  if (__builtin_mul_overflow(numel(fixed_shape(array.dims)), bytes_of(array.dtype), &bytes) ||
      uint64_t(bytes) != array.bytes.size())
    throw Error(Code::value, in_quotes(array.name) + " has " + std::to_string(array.bytes.size()) +
                                 " bytes, which its shape and dtype do not make");
}

// Checked, and by width, the widest first, then by name: so every tensor is aligned to its type.
Arrays ordered(std::span<const NamedArray> arrays) {
  Arrays order;
  for (auto& array : arrays) {
    check_array(array);
    order.push_back(&array);
  }
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->name < b->name; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->name == order[i - 1]->name)
      throw Error(Code::value, "two tensors are called " + in_quotes(order[i]->name));
  std::stable_sort(order.begin(), order.end(),
                   [](auto* a, auto* b) { return bytes_of(a->dtype) > bytes_of(b->dtype); });
  return order;
}

std::string header_of(const Arrays& arrays, const Metadata& metadata) {
  std::string text = "{", comma;
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (auto& [key, value] : metadata) text += std::exchange(comma, ",") + json_of(key) + ":" + json_of(value);
    text += "}";
  }
  uint64_t at = 0;
  for (auto* array : arrays) {
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", text == "{" ? "" : ",",
                        json_of(array->name), safetensors_dtypes[size_t(array->dtype)], fmt::join(array->dims, ","), at,
                        at + array->bytes.size());
    at += array->bytes.size();
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the tensors start aligned
  return text;
}

void write_file(const std::string& path, const Arrays& arrays, const Metadata& metadata) {
  std::string header = header_of(arrays, metadata), size;
  for (int i = 0; i < 8; ++i) size += char(uint64_t(header.size()) >> (8 * i));
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(size)));
  file.write(std::as_bytes(std::span(header)));
  for (auto* array : arrays) file.write(array->bytes);
  file.commit();
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const NamedArray> arrays, const Metadata& metadata) {
  write_file(path, ordered(arrays), metadata);
}

void write_sharded(const std::string& folder, std::span<const NamedArray> arrays, int64_t shard_bytes_max,
                   const Metadata& metadata) {
  if (shard_bytes_max < 1) throw Error(Code::value, "a shard must hold at least one byte");
  std::vector<Arrays> shards(1);
  uint64_t bytes = 0, total = 0;
  for (auto* array : ordered(arrays)) {
    if (bytes > 0 && bytes + array->bytes.size() > uint64_t(shard_bytes_max)) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(array);
    bytes += array->bytes.size();
    total += array->bytes.size();
  }
  if (shards.size() == 1) return write_file(folder + "/model.safetensors", shards[0], metadata);
  std::map<std::string, std::string> weight_map;
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_file(folder + "/" + name, shards[i], metadata);
    for (auto* array : shards[i]) weight_map[array->name] = name;
  }
  nlohmann::json index{{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  std::string text = index.dump(2) + "\n";
  AtomicFile file(folder + "/model.safetensors.index.json");
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace sluice
