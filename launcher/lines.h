// SPDX-License-Identifier: Apache-2.0
// What several processes print, line by line on one stream: "[host:2] text". A line that other sources have just
// printed too is counted instead, and told once: "[host:2] text  (3 others said it too)".
// Invariants: a line is never mixed with another; a source without a line end holds at most `line_bytes_max` here.
// Thread rule: one thread.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

inline constexpr size_t line_bytes_max = 16 << 10;  // what is longer becomes several lines

class Lines {
 public:
  using Clock = std::chrono::steady_clock;
  using Sink = std::function<void(const std::string& line)>;  // with its line end

  struct Options {
    bool dedup = true;
    bool plain = false;                      // without escape sequences, as for a file
    std::chrono::milliseconds window{1000};  // how long a line waits for others like it
  };
  Lines(Sink sink, const Options& options) : sink_(std::move(sink)), options_(options) {}

  int add_source(const std::string& label);
  void add(int source, std::string_view bytes, Clock::time_point now);
  void end(int source, Clock::time_point now);  // what it left without a line end is a line
  // Tells the counts whose time has come. When the next one comes: nothing where none waits.
  std::optional<Clock::time_point> tick(Clock::time_point now);
  void flush();  // tells all counts

 private:
  struct Source {
    std::string label, rest;
  };
  struct Waiting {
    int first = 0;
    std::string text;
    std::set<int> others;
    Clock::time_point until;
  };
  void print(int source, const std::string& text, Clock::time_point now);
  void tell(const Waiting& waiting);

  Sink sink_;
  Options options_;
  std::vector<Source> sources_;
  std::vector<Waiting> waiting_;  // in the order of their time
};

// A line as people without a terminal read it: no escape sequences, no other control bytes, and of what was printed
// over with "\r" only the last.
std::string plain(std::string_view line);

}  // namespace sluice
