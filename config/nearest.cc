// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>

#include "config/config.h"

namespace sluice {
namespace {

std::string plain(std::string_view word) {
  std::string out;
  for (char c : word.substr(0, 64))
    out += c == '-' || c == ' ' ? '_' : char(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Edits of one character, and swaps of two neighbours.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before, last, row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::move(last);
    last = row;
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& words) {
  std::string best, w = plain(word);
  size_t best_distance = std::string::npos;
  for (auto& candidate : words) {
    std::string c = plain(candidate);
    size_t d = distance(w, c), allowed = std::max<size_t>(1, std::max(w.size(), c.size()) / 3);
    bool inside =
        w.size() >= 4 && (c.find(w) != std::string::npos || (c.size() >= 4 && w.find(c) != std::string::npos));
    if ((d <= allowed || inside) && d < std::max(w.size(), c.size()) && d < best_distance)
      best = candidate, best_distance = d;
  }
  return best;
}

}  // namespace sluice
