// SPDX-License-Identifier: Apache-2.0
// Text of attributes: true | 3 | 0.5 | "text" | [1,2] | shape[128b,784] | dtype:float32
#include "base/attr.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace sluice {
namespace {

[[noreturn]] void bad(std::string_view text) {
  throw Error(Code::value, fmt::format("{} is no attribute value", quote(text.substr(0, 80))), {},
              "write true, 3, 0.5, \"text\", [1,2], shape[128b,784] or dtype:float32");
}

int64_t integer(std::string_view text, std::string_view whole) {
  int64_t value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) bad(whole);
  return value;
}

double real(std::string_view text) {
  double value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) bad(text);
  return value;
}

// The parts between commas: nothing inside is no part; a comma always separates two.
std::vector<std::string_view> items(std::string_view inside) {
  std::vector<std::string_view> parts;
  if (inside.empty()) return parts;
  for (size_t begin = 0; begin <= inside.size();) {
    size_t end = std::min(inside.find(',', begin), inside.size());
    parts.push_back(inside.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Dim parse_dim(std::string_view item, std::string_view whole) {
  Dim dim;
  size_t star = item.find('*');
  if (star != item.npos) dim.granule = integer(item.substr(star + 1), whole);
  item = item.substr(0, star);
  if (!item.empty() && item.back() > 'a' && item.back() < 'a' + syms_max) {
    dim.sym = item.back() - 'a';
    item.remove_suffix(1);
  }
  dim.size = integer(item, whole);
  if (dim.size < 0 || dim.granule < 1 || dim.size % dim.granule != 0) bad(whole);
  if (dim.sym == fixed_sym && dim.granule != 1) bad(whole);
  return dim;
}

Shape parse_shape(std::string_view inside, std::string_view whole) {
  Shape shape;
  for (auto item : items(inside)) shape.push_back(parse_dim(item, whole));
  if (shape.size() > rank_max) bad(whole);
  return shape;
}

}  // namespace

std::string text_of(const AttrValue& value) {
  struct Print {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const {
      std::string text = fmt::format("{}", v);
      return text.find_first_of(".einf") == text.npos ? text + ".0" : text;
    }
    std::string operator()(const std::string& v) const { return quote(v); }
    std::string operator()(const std::vector<int64_t>& v) const { return fmt::format("[{}]", fmt::join(v, ",")); }
    std::string operator()(const Shape& v) const { return "shape" + text_of(v); }
    std::string operator()(DType v) const { return fmt::format("dtype:{}", name_of(v)); }
  };
  return std::visit(Print{}, value);
}

AttrValue parse_attr(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  if (text.empty()) bad(text);
  if (text.front() == '"') return unquote(text);
  if (text.front() == '[' && text.back() == ']') {
    std::vector<int64_t> v;
    for (auto item : items(text.substr(1, text.size() - 2))) v.push_back(integer(item, text));
    return v;
  }
  if (text.substr(0, 6) == "shape[" && text.back() == ']') return parse_shape(text.substr(6, text.size() - 7), text);
  if (text.substr(0, 6) == "dtype:") {
    auto dtype = parse_dtype(text.substr(6));
    if (!dtype) bad(text);
    return *dtype;
  }
  if (text.find_first_of(".einf") != text.npos) return real(text);
  return integer(text, text);
}

}  // namespace sluice
