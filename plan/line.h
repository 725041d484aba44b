// SPDX-License-Identifier: Apache-2.0
// One line of a text form, in tokens: words, then key=value fields in any order. Spaces separate tokens, but not inside
// quotes or brackets. Every error is Error(value) without a place; the caller knows the line's number.
// Invariant: views point into the text handed to the constructor.
// Thread rule: values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// The parts between commas that lie outside quotes and brackets; "" has none.
std::vector<std::string_view> split_list(std::string_view inside, char separator = ',');
// The inside of "[...]" (or other brackets); throws where the text is not wrapped in them.
std::string_view unwrap(std::string_view text, char open, char close);
// A name as word_of writes it.
std::string parse_word(std::string_view text);
int64_t parse_integer(std::string_view text);
int parse_int(std::string_view text);                                  // within int's range
int parse_index(std::string_view text, char prefix);                   // "%12", "r3": not negative
std::vector<int> parse_indices(std::string_view inside, char prefix);  // "%1,%2"

class Line {
 public:
  explicit Line(std::string_view text);
  bool empty() const { return tokens_.empty(); }
  std::string_view word(std::string_view what);                 // the next token; `what` names it in the error
  std::optional<std::string_view> field(std::string_view key);  // the value of key=...
  bool flag(std::string_view key);                              // a token that is just the key
  std::optional<std::string_view> starting_with(char first);    // a token such as {...}
  int64_t integer(std::string_view key, int64_t otherwise);
  int small(std::string_view key, int otherwise);  // an int
  std::string text(std::string_view key);          // "" where absent
  void done() const;                               // throws where a token was not asked for

 private:
  std::vector<std::string_view> tokens_;
  std::vector<bool> used_;
  size_t next_ = 0;
};

}  // namespace sluice
