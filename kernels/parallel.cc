// SPDX-License-Identifier: Apache-2.0
#include "kernels/parallel.h"

#include <atomic>
#include <exception>
#include <mutex>

namespace sluice::detail {
namespace {

// What the team shares. ThreadSanitizer does not see the barriers inside the OpenMP library, so the order that they
// give is said again by two atomics: `opened` before the pieces, `closed` after them.
struct Team {
  TeamBody body;
  void* context;
  std::atomic<int> opened = 0, closed = 0;
  std::mutex mutex;
  std::exception_ptr failure;
};

void run_piece(Team& team, int piece) {
  team.opened.load(std::memory_order_acquire);
  try {
    team.body(team.context, piece);
  } catch (...) {
    std::lock_guard lock(team.mutex);
    if (!team.failure) team.failure = std::current_exception();
  }
  team.closed.fetch_add(1, std::memory_order_acq_rel);
}

// Reads only the compiler's own record of the loop, which the OpenMP library hands over.
__attribute__((no_sanitize("thread"))) void open_team(Team& team, int pieces) {
#pragma omp parallel for num_threads(pieces) schedule(static, 1)
  for (int piece = 0; piece < pieces; ++piece) run_piece(team, piece);
}

}  // namespace

void run_team(int pieces, TeamBody body, void* context) {
  Team team{body, context};
  team.opened.store(1, std::memory_order_release);
  open_team(team, pieces);
  team.closed.load(std::memory_order_acquire);
  if (team.failure) std::rethrow_exception(team.failure);
}

}  // namespace sluice::detail
