// SPDX-License-Identifier: Apache-2.0
// Element types. The names are the array API standard's; bfloat16 and float16 are storage types here.
// Thread rule: values.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace sluice {

enum class DType : uint8_t { float32, float64, bfloat16, float16, int8, int16, int32, int64, uint8, bool_ };

inline constexpr std::array<std::string_view, 10> dtype_names{"float32", "float64", "bfloat16", "float16", "int8",
                                                              "int16",   "int32",   "int64",    "uint8",   "bool"};

constexpr std::string_view name_of(DType t) { return dtype_names[size_t(t)]; }

constexpr std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < dtype_names.size(); ++i)
    if (dtype_names[i] == name) return DType(i);
  return std::nullopt;
}

constexpr int64_t bytes_of(DType t) {
  constexpr std::array<int64_t, 10> bytes{4, 8, 2, 2, 1, 2, 4, 8, 1, 1};
  return bytes[size_t(t)];
}

constexpr bool is_float(DType t) { return t <= DType::float16; }
constexpr bool is_integer(DType t) { return t >= DType::int8 && t <= DType::uint8; }

template <class T>
struct Tag {
  using type = T;
};

// Calls f(Tag<T>{}) with the C++ type of `t`; returns false for the storage-only types (bfloat16, float16).
template <class F>
bool visit_dtype(DType t, F&& f) {
  switch (t) {
    case DType::float32: f(Tag<float>{}); return true;
    case DType::float64: f(Tag<double>{}); return true;
    case DType::int8: f(Tag<int8_t>{}); return true;
    case DType::int16: f(Tag<int16_t>{}); return true;
    case DType::int32: f(Tag<int32_t>{}); return true;
    case DType::int64: f(Tag<int64_t>{}); return true;
    case DType::uint8: f(Tag<uint8_t>{}); return true;
    case DType::bool_: f(Tag<bool>{}); return true;
    default: return false;
  }
}

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::float32;
  if constexpr (std::is_same_v<T, double>) return DType::float64;
  if constexpr (std::is_same_v<T, int8_t>) return DType::int8;
  if constexpr (std::is_same_v<T, int16_t>) return DType::int16;
  if constexpr (std::is_same_v<T, int32_t>) return DType::int32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::int64;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::uint8;
  if constexpr (std::is_same_v<T, bool>) return DType::bool_;
}

}  // namespace sluice
