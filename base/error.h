// SPDX-License-Identifier: Apache-2.0
// Errors of the planning world: one exception type that says what, where, why and what to do next.
// The running world never lets one leave a handler: it becomes one `failed` message (actors/).
// A broken invariant of ours is not an Error: check() stops the process with its reason, in release too.
// Thread rule: values; no shared state.
#pragma once
#include <exception>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

// Where the user wrote it: a Python file or a TOML file. Line 0: unknown.
struct Place {
  std::string file;
  int line = 0;
  bool known() const { return line > 0; }
  std::string text() const { return known() ? file + ":" + std::to_string(line) : file; }
  bool operator==(const Place&) const = default;
};

enum class Code {
  value,      // a wrong value or shape: Python's ValueError
  type,       // a wrong dtype or kind: TypeError
  index,      // an index out of range: IndexError
  not_found,  // a missing file, name or key: KeyError / FileNotFoundError
  io,         // a file or a frame is corrupt or cannot be read: OSError
  usage,      // a wrong flag or config: exit code 64
  cancelled,  // stopped by the user
  failed,     // the running world failed: RuntimeError
};

class Error : public std::exception {
 public:
  Error(Code code, std::string message, Place place = {}, std::string next = {})
      : code_(code), message_(std::move(message)), place_(std::move(place)), next_(std::move(next)) {
    text_ = message_;
    if (!place_.text().empty()) text_ = place_.text() + ": " + text_;
    if (!next_.empty()) text_ += "\n  next: " + next_;
  }
  const char* what() const noexcept override { return text_.c_str(); }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }  // without the place and the advice
  const Place& place() const { return place_; }
  const std::string& next() const { return next_; }
  // The same error at a place, when it has none yet.
  Error at(const Place& place) const { return place_.text().empty() ? Error(code_, message_, place, next_) : *this; }

 private:
  Code code_;
  std::string message_;
  Place place_;
  std::string next_, text_;
};

[[noreturn]] void broken_invariant(std::string_view why, std::source_location where);

// An invariant of ours. Never used for input of any kind.
inline void check(bool holds, std::string_view why, std::source_location where = std::source_location::current()) {
  if (!holds) [[unlikely]]
    broken_invariant(why, where);
}

}  // namespace sluice
