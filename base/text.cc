// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace sluice {
namespace {

[[noreturn]] void bad(std::string_view text, std::string_view why) {
  throw Error(Code::value, fmt::format("{} {}", quote(text.substr(0, 80)), why));
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Reads the escape after a backslash at `at`, and leaves `at` on its last character.
char escaped(std::string_view inside, size_t& at) {
  if (++at >= inside.size()) bad(inside, "ends inside an escape");
  switch (inside[at]) {
    case '"':
    case '\\': return inside[at];
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'x':
      if (at + 2 < inside.size()) {
        int high = hex_digit(inside[at + 1]), low = hex_digit(inside[at + 2]);
        if (high >= 0 && low >= 0) {
          at += 2;
          return char(high * 16 + low);
        }
      }
      [[fallthrough]];
    default: bad(inside, "holds an unknown escape");
  }
}

}  // namespace

std::string quote(std::string_view s) {
  std::string text = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (c == '\n') {
      text += "\\n";
    } else if (c == '\r') {
      text += "\\r";
    } else if (c == '\t') {
      text += "\\t";
    } else if (uint8_t(c) < 32 || c == 127) {
      text += fmt::format("\\x{:02x}", uint8_t(c));
    } else {
      text += c;
    }
  }
  return text + "\"";
}

std::string unquote(std::string_view text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') bad(text, "is no quoted text");
  std::string_view inside = text.substr(1, text.size() - 2);
  std::string s;
  for (size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] == '"') bad(text, "holds a quote that is not escaped");
    s += inside[i] == '\\' ? escaped(inside, i) : inside[i];
  }
  return s;
}

bool is_plain(std::string_view word) {
  auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_./:+-@").find(c) != std::string_view::npos;
  };
  return !word.empty() && std::all_of(word.begin(), word.end(), plain);
}

std::string word_of(std::string_view name) { return is_plain(name) ? std::string(name) : quote(name); }

}  // namespace sluice
