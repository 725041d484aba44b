// SPDX-License-Identifier: Apache-2.0
// The one loop over a device's team of threads. The team is OpenMP's, led by the calling thread (a stream's worker); a
// device of one thread never starts a team.
// Thread rule: any thread; `body` runs concurrently on disjoint ranges and has returned everywhere when parallel_for
// returns. An exception in it is rethrown on the caller.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace sluice {

namespace detail {
using TeamBody = void (*)(void* context, int64_t piece);
void run_team(int pieces, TeamBody body, void* context);
}  // namespace detail

// Calls body(begin, end) on pieces of [0, n), at most `threads` of them and each at least `grain` long (but for n
// itself); pieces begin at multiples of `unit`.
template <class F>
void parallel_for(int threads, int64_t n, int64_t grain, F&& body, int64_t unit = 1) {
  int64_t units = (n + unit - 1) / unit;
  int64_t pieces = std::min<int64_t>({threads, n / std::max<int64_t>(grain, 1), units});
  if (pieces <= 1) {
    if (n > 0) body(int64_t(0), n);
    return;
  }
  struct Context {
    std::remove_reference_t<F>& body;
    int64_t n, unit, units, pieces;
  } context{body, n, unit, units, pieces};
  detail::run_team(
      int(pieces),
      [](void* c, int64_t piece) {
        auto& my = *static_cast<Context*>(c);
        int64_t begin = my.units * piece / my.pieces * my.unit;
        int64_t end = std::min(my.units * (piece + 1) / my.pieces * my.unit, my.n);
        my.body(begin, end);
      },
      &context);
}

}  // namespace sluice
