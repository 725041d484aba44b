// SPDX-License-Identifier: Apache-2.0
#include "plan/line.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace sluice {
namespace {

[[noreturn]] void bad(std::string_view text, std::string_view why) {
  throw Error(Code::value, fmt::format("{} {}", quote(text.substr(0, 80)), why));
}

// The end of what starts at `begin`: the next separator outside quotes and brackets.
size_t end_of_item(std::string_view text, size_t begin, char separator) {
  int depth = 0;
  bool quotes = false;
  for (size_t i = begin; i < text.size(); ++i) {
    char c = text[i];
    if (quotes) {
      if (c == '\\') ++i;
      if (c == '"') quotes = false;
    } else if (c == '"') {
      quotes = true;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      if (--depth < 0) bad(text, "closes a bracket that it did not open");
    } else if (c == separator && depth == 0) {
      return i;
    }
  }
  if (quotes || depth != 0) bad(text, "leaves a quote or a bracket open");
  return text.size();
}

}  // namespace

std::vector<std::string_view> split_list(std::string_view inside, char separator) {
  std::vector<std::string_view> parts;
  if (inside.empty()) return parts;
  for (size_t begin = 0; begin <= inside.size();) {
    size_t end = end_of_item(inside, begin, separator);
    parts.push_back(inside.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string_view unwrap(std::string_view text, char open, char close) {
  if (text.size() < 2 || text.front() != open || text.back() != close)
    bad(text, fmt::format("is not between {} and {}", open, close));
  return text.substr(1, text.size() - 2);
}

std::string parse_word(std::string_view text) {
  if (text.starts_with('"')) return unquote(text);
  if (!is_plain(text)) bad(text, "is no name: put it in quotes");
  return std::string(text);
}

int64_t parse_integer(std::string_view text) {
  int64_t value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) bad(text, "is no integer");
  return value;
}

int parse_int(std::string_view text) {
  int64_t value = parse_integer(text);
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) bad(text, "is too large");
  return int(value);
}

int parse_index(std::string_view text, char prefix) {
  int value = text.starts_with(prefix) ? parse_int(text.substr(1)) : -1;
  if (value < 0) bad(text, fmt::format("is no index: write {}0", prefix));
  return value;
}

std::vector<int> parse_indices(std::string_view inside, char prefix) {
  std::vector<int> indices;
  for (auto part : split_list(inside)) indices.push_back(parse_index(part, prefix));
  return indices;
}

Line::Line(std::string_view text) {
  for (size_t begin = 0; begin < text.size();) {
    if (text[begin] == ' ') {
      ++begin;
    } else {
      size_t end = end_of_item(text, begin, ' ');
      tokens_.push_back(text.substr(begin, end - begin));
      begin = end;
    }
  }
  used_.resize(tokens_.size());
}

std::string_view Line::word(std::string_view what) {
  if (next_ == tokens_.size()) throw Error(Code::value, fmt::format("the line ends where {} should be", what));
  used_[next_] = true;
  return tokens_[next_++];
}

std::optional<std::string_view> Line::field(std::string_view key) {
  for (size_t i = next_; i < tokens_.size(); ++i)
    if (!used_[i] && tokens_[i].size() > key.size() && tokens_[i].starts_with(key) && tokens_[i][key.size()] == '=') {
      used_[i] = true;
      return tokens_[i].substr(key.size() + 1);
    }
  return std::nullopt;
}

bool Line::flag(std::string_view key) {
  for (size_t i = next_; i < tokens_.size(); ++i)
    if (!used_[i] && tokens_[i] == key) return used_[i] = true;
  return false;
}

std::optional<std::string_view> Line::starting_with(char first) {
  for (size_t i = next_; i < tokens_.size(); ++i)
    if (!used_[i] && tokens_[i].starts_with(first)) {
      used_[i] = true;
      return tokens_[i];
    }
  return std::nullopt;
}

int64_t Line::integer(std::string_view key, int64_t otherwise) {
  auto value = field(key);
  return value ? parse_integer(*value) : otherwise;
}

int Line::small(std::string_view key, int otherwise) {
  auto value = field(key);
  return value ? parse_int(*value) : otherwise;
}

std::string Line::text(std::string_view key) {
  auto value = field(key);
  return value ? parse_word(*value) : std::string();
}

void Line::done() const {
  for (size_t i = 0; i < tokens_.size(); ++i)
    if (!used_[i]) bad(tokens_[i], "is unknown here, or stands twice");
}

}  // namespace sluice
