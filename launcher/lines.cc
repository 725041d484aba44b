// SPDX-License-Identifier: Apache-2.0
#include "launcher/lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace sluice {
namespace {

constexpr size_t waiting_max = 64;  // lines; each new one is compared with all

}  // namespace

std::string plain(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  if (size_t at = line.rfind('\r'); at != line.npos) line.remove_prefix(at + 1);
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    auto byte = uint8_t(line[i]);
    if (byte == 0x1b && i + 1 < line.size() && line[i + 1] == '[') {  // up to its final byte
      for (i += 2; i < line.size() && (uint8_t(line[i]) < 0x40 || uint8_t(line[i]) > 0x7e);) ++i;
    } else if (byte >= 0x20 ? byte != 0x7f : byte == '\t') {
      text += line[i];
    }
  }
  return text;
}

int Lines::add_source(const std::string& label) {
  sources_.push_back({label, {}});
  return int(sources_.size()) - 1;
}

void Lines::add(int source, std::string_view bytes, Clock::time_point now) {
  auto& rest = sources_[size_t(source)].rest;
  while (!bytes.empty()) {
    size_t at = bytes.find('\n');
    size_t take = std::min(at == bytes.npos ? bytes.size() : at, line_bytes_max - rest.size());
    rest += bytes.substr(0, take);
    bool full = rest.size() == line_bytes_max, whole = take == at;
    bytes.remove_prefix(take + (whole ? 1 : 0));
    if (!whole && !full) break;
    print(source, std::exchange(rest, {}), now);
  }
}

void Lines::end(int source, Clock::time_point now) {
  auto& from = sources_[size_t(source)];
  if (!from.rest.empty()) print(source, std::exchange(from.rest, {}), now);
}

void Lines::print(int source, const std::string& raw, Clock::time_point now) {
  tick(now);
  std::string text = options_.plain ? plain(raw) : raw;
  if (options_.dedup) {
    auto same = std::find_if(waiting_.begin(), waiting_.end(), [&](auto& w) { return w.text == text; });
    if (same != waiting_.end() && same->first != source && same->others.insert(source).second) {
      if (same->others.size() + 1 < sources_.size()) return;
      tell(*same);  // all have said it
      waiting_.erase(same);
      return;
    }
    if (same != waiting_.end()) tell(*same), waiting_.erase(same);  // it says so again
    if (waiting_.size() == waiting_max) tell(waiting_.front()), waiting_.erase(waiting_.begin());
    if (sources_.size() > 1) waiting_.push_back({source, text, {}, now + options_.window});
  }
  sink_(fmt::format("[{}] {}\n", sources_[size_t(source)].label, text));
}

void Lines::tell(const Waiting& waiting) {
  if (waiting.others.empty()) return;
  std::string who = waiting.others.size() == 1
                        ? fmt::format("[{}] said it", sources_[size_t(*waiting.others.begin())].label)
                        : fmt::format("{} others said it", waiting.others.size());
  sink_(fmt::format("[{}] {}  ({} too)\n", sources_[size_t(waiting.first)].label, waiting.text, who));
}

std::optional<Lines::Clock::time_point> Lines::tick(Clock::time_point now) {
  while (!waiting_.empty() && waiting_.front().until <= now) {
    tell(waiting_.front());
    waiting_.erase(waiting_.begin());
  }
  auto counted = std::find_if(waiting_.begin(), waiting_.end(), [](auto& w) { return !w.others.empty(); });
  if (counted == waiting_.end()) return {};
  return counted->until;
}

void Lines::flush() {
  for (auto& waiting : std::exchange(waiting_, {})) tell(waiting);
}

}  // namespace sluice
