// SPDX-License-Identifier: Apache-2.0
// Text of attributes: true | 3 | 0.5 | "text" | [1,2] | shape[128b,784] | dtype:float32
#include "base/attr.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace sluice {
namespace {

std::string quoted(const std::string& s) {
  std::string text = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '\n') text += "\\n";
    else text += c;
  }
  return text + "\"";
}

[[noreturn]] void bad(std::string_view text) {
  throw Error(Code::value, fmt::format("'{}' is no attribute value", text));
}

int64_t integer(std::string_view text, std::string_view whole) {
  int64_t value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) bad(whole);
  return value;
}

std::vector<std::string_view> items(std::string_view inside) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin < inside.size();) {
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
  return dim;
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
    std::string operator()(const std::string& v) const { return quoted(v); }
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
  if (text.front() == '"') {
    std::string s;
    if (text.size() < 2 || text.back() != '"') bad(text);
    for (size_t i = 1; i + 1 < text.size(); ++i) {
      if (text[i] == '\\' && i + 2 < text.size()) {
        ++i;
        s += text[i] == 'n' ? '\n' : text[i];
      } else {
        s += text[i];
      }
    }
    return s;
  }
  if (text.front() == '[' && text.back() == ']') {
    std::vector<int64_t> v;
    for (auto item : items(text.substr(1, text.size() - 2))) v.push_back(integer(item, text));
    return v;
  }
  if (text.substr(0, 6) == "shape[" && text.back() == ']') {
    Shape shape;
    for (auto item : items(text.substr(6, text.size() - 7))) shape.push_back(parse_dim(item, text));
    return shape;
  }
  if (text.substr(0, 6) == "dtype:") {
    auto dtype = parse_dtype(text.substr(6));
    if (!dtype) bad(text);
    return *dtype;
  }
  if (text.find_first_of(".einf") != text.npos) {
    double value = 0;
    auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc{} || end != text.data() + text.size()) bad(text);
    return value;
  }
  return integer(text, text);
}

}  // namespace sluice
