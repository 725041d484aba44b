// SPDX-License-Identifier: Apache-2.0
// Random numbers for kernels: each element of a local tensor gets the number of its index in the whole batch's logical
// tensor, so that a placement or a micro-batch changes nothing.
// Thread rule: pure but for the buffers.
#pragma once
#include <algorithm>
#include <string>

#include "base/philox.h"
#include "kernels/op.h"
#include "kernels/parallel.h"

namespace sluice {

// The key of a random op: of the node that its attribute `key` names, else of its own node.
inline RandomKey random_key_of(const Call& call) {
  auto& key = call.attr<std::string>("key");
  return {call.seed, key.empty() ? call.op_key : name_hash(key), call.step};
}

// out[i] = key.bits(first + i) for i in [0, n).
void random_bits(const RandomKey& key, uint64_t first, int64_t n, uint32_t* out);

// Calls run(local, index, n) for maximal runs of elements that follow each other both in `view` (from `local` on) and
// in the whole tensor (from `index` on). The runs are spread over the threads.
template <class F>
void for_random_runs(const View& view, int threads, F&& run) {
  constexpr int64_t grain = 1 << 12;
  int64_t length = 1;  // of a run: the trailing dims that are whole here, and the one before them
  int outer = view.rank;
  while (outer > 0) {
    auto d = size_t(--outer);
    length *= view.dims[d];
    if (view.dims[d] != view.whole[d]) break;
  }
  int64_t origin = 0, step = 1;
  for (int d = view.rank - 1; d >= outer; step *= view.whole[size_t(d)], --d) origin += view.origin[size_t(d)] * step;
  parallel_for(threads, view.numel(), grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      int64_t row = begin / length, at = begin % length, index = origin + at, stride = step;
      for (int d = outer - 1; d >= 0; --d) {
        index += (row % view.dims[size_t(d)] + view.origin[size_t(d)]) * stride;
        row /= view.dims[size_t(d)];
        stride *= view.whole[size_t(d)];
      }
      int64_t n = std::min(length - at, end - begin);
      run(begin, uint64_t(index), n);
      begin += n;
    }
  });
}

}  // namespace sluice
