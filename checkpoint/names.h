// SPDX-License-Identifier: Apache-2.0
// Names in safetensors files and in messages about them.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace sluice {

// In the order of DType.
inline constexpr std::array<std::string_view, 10> safetensors_dtypes{"F32", "F64", "BF16", "F16", "I8",
                                                                     "I16", "I32", "I64",  "U8",  "BOOL"};
constexpr std::optional<DType> parse_safetensors_dtype(std::string_view name) {
  for (size_t i = 0; i < safetensors_dtypes.size(); ++i)
    if (safetensors_dtypes[i] == name) return DType(i);
  return std::nullopt;
}

// For messages: printable and short, whatever a hostile file holds.
inline std::string in_quotes(std::string_view name) {
  std::string text = "'";
  for (char c : name.substr(0, 80)) text += uint8_t(c) < 0x20 || c == 0x7F ? '?' : c;
  return text + (name.size() > 80 ? "...'" : "'");
}

}  // namespace sluice
