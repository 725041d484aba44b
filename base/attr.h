// SPDX-License-Identifier: Apache-2.0
// Typed attributes of ops, moves and sources. Order is kept; names are unique (the builder checks).
// Thread rule: values.
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace sluice {

using AttrValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, Shape, DType>;

struct Attr {
  std::string name;
  AttrValue value;
  bool operator==(const Attr&) const = default;
};
using Attrs = std::vector<Attr>;

inline const AttrValue* find_attr(const Attrs& attrs, std::string_view name) {
  for (auto& attr : attrs)
    if (attr.name == name) return &attr.value;
  return nullptr;
}

// The value of an attribute that the builder has already checked: absent or of another type is a broken invariant.
template <class T>
const T& attr(const Attrs& attrs, std::string_view name);

std::string text_of(const AttrValue& value);  // parses back with parse_attr; strings are quoted
AttrValue parse_attr(std::string_view text);  // throws Error

}  // namespace sluice

#include "base/error.h"
namespace sluice {
template <class T>
const T& attr(const Attrs& attrs, std::string_view name) {
  auto* value = find_attr(attrs, name);
  check(value && std::holds_alternative<T>(*value), "an attribute is absent or of another type than declared");
  return std::get<T>(*value);
}
}  // namespace sluice
