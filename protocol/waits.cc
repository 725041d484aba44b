// SPDX-License-Identifier: Apache-2.0
#include "protocol/waits.h"

#include <algorithm>
#include <cstddef>

namespace sluice {
namespace {

// Depth-first search with an explicit path: stops at the first actor that is met again on the path.
struct Search {
  std::vector<std::vector<const Wait*>> from;
  std::vector<char> seen;
  std::vector<const Wait*> path, longest;

  // Waits of the cycle, or empty. Recursion would be as deep as the plan is long, so the stack is ours.
  std::vector<const Wait*> cycle(int start) {
    std::vector<size_t> next{0};
    std::vector<int> at{start};
    std::vector<char> on_path(from.size(), 0);
    on_path[size_t(start)] = seen[size_t(start)] = 1;
    while (!at.empty()) {
      auto& edges = from[size_t(at.back())];
      if (next.back() == edges.size()) {
        if (path.size() > longest.size()) longest = path;
        on_path[size_t(at.back())] = 0;
        at.pop_back();
        next.pop_back();
        if (!path.empty()) path.pop_back();
        continue;
      }
      const Wait* wait = edges[next.back()++];
      if (on_path[size_t(wait->on)]) {
        auto begin = size_t(std::find(at.begin(), at.end(), wait->on) - at.begin());
        std::vector<const Wait*> loop(path.begin() + std::ptrdiff_t(begin), path.end());
        loop.push_back(wait);
        return loop;
      }
      if (seen[size_t(wait->on)]) continue;
      seen[size_t(wait->on)] = on_path[size_t(wait->on)] = 1;
      path.push_back(wait);
      at.push_back(wait->on);
      next.push_back(0);
    }
    return {};
  }
};

}  // namespace

std::string wait_cycle(const std::vector<std::string>& names, const std::vector<Wait>& waits) {
  Search search;
  search.from.resize(names.size());
  search.seen.assign(names.size(), 0);
  for (auto& wait : waits) search.from[size_t(wait.actor)].push_back(&wait);
  std::vector<const Wait*> lines;
  for (size_t a = 0; a < names.size() && lines.empty(); ++a)
    if (!search.seen[a]) lines = search.cycle(int(a));
  bool closed = !lines.empty();
  if (!closed) lines = search.longest;
  std::string text;
  for (auto* wait : lines) text += "  " + names[size_t(wait->actor)] + " waits for " + wait->why + "\n";
  if (!lines.empty())
    text += closed ? "  and so on: a cycle\n" : "  " + names[size_t(lines.back()->on)] + " waits for nobody\n";
  return text;
}

}  // namespace sluice
