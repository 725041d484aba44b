// SPDX-License-Identifier: Apache-2.0
// Runs a piece: runs of contiguous elements are copied or combined, outer dims are counted through.
#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/error.h"
#include "comm/move.h"
#include "kernels/box.h"
#include "kernels/simd.h"

namespace sluice {

namespace {

BoxWalk walk_of(const Piece& piece) {
  check(piece.to.size() <= size_t(rank_max), "a piece has more dims than a tensor may have");
  BoxWalk walk;
  int64_t from_step = 1, to_step = 1;
  bool whole = true;
  for (size_t d = piece.to.size(); d-- > 0;) {
    walk.from_begin += piece.from[d].begin * from_step;
    walk.to_begin += piece.to[d].begin * to_step;
    if (whole) {
      walk.run *= piece.to[d].size;
      whole = piece.to[d].size == piece.from_dims[d] && piece.to[d].size == piece.to_dims[d];
    } else if (piece.to[d].size != 1) {
      walk.size[size_t(walk.dims)] = piece.to[d].size;
      walk.from_step[size_t(walk.dims)] = from_step;
      walk.to_step[size_t(walk.dims)] = to_step;
      ++walk.dims;
    }
    from_step *= piece.from_dims[d];
    to_step *= piece.to_dims[d];
  }
  return walk;
}

template <class F>
void for_each_run(const BoxWalk& walk, F&& f) {
  std::array<int64_t, rank_max> at{};
  int64_t from = walk.from_begin, to = walk.to_begin;
  while (true) {
    f(from, to);
    int d = 0;
    for (; d < walk.dims; ++d) {
      auto i = size_t(d);
      from += walk.from_step[i];
      to += walk.to_step[i];
      if (++at[i] < walk.size[i]) break;
      from -= walk.from_step[i] * walk.size[i];
      to -= walk.to_step[i] * walk.size[i];
      at[i] = 0;
    }
    if (d == walk.dims) return;
  }
}

// `to` is 16-byte aligned.
void store_past_caches(void* to, const void* from, size_t bytes) {
#if defined(__x86_64__)
  auto* target = static_cast<__m128i*>(to);
  auto* source = static_cast<const __m128i*>(from);
  size_t whole = bytes / sizeof(__m128i);
  for (size_t i = 0; i < whole; ++i) _mm_stream_si128(target + i, _mm_loadu_si128(source + i));
  std::memcpy(target + whole, source + whole, bytes % sizeof(__m128i));
  if (bytes % 4096 != 0) _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

template <class Op, class T>
void combine_two(T* __restrict to, const T* __restrict a, const T* __restrict b, int64_t n) {
  constexpr int64_t block = 32;  // a constant count: vectorised at -O2
  int64_t i = 0;
  for (; i + block <= n; i += block)
    for (int64_t j = 0; j < block; ++j) to[i + j] = combined<Op>(a[i + j], b[i + j]);
  for (; i < n; ++i) to[i] = combined<Op>(a[i], b[i]);
}

template <class Op, class T>
void combine_run(T* __restrict to, const T* __restrict from, int64_t n) {
  constexpr int64_t block = 32;
  int64_t i = 0;
  for (; i + block <= n; i += block)
    for (int64_t j = 0; j < block; ++j) to[i + j] = combined<Op>(to[i + j], from[i + j]);
  for (; i < n; ++i) to[i] = combined<Op>(to[i], from[i]);
}

// The sources of one run of elements, combined block by block: a block stays in the first cache until it is done. Long
// runs are stored past the caches, as nobody reads their beginning again before their end is written.
template <class Op, class T>
void combine_all(T* to, const T* const* from, size_t sources, int64_t n) {
  constexpr int64_t block = 2048;
  constexpr int64_t bytes_streamed = int64_t(4) << 20;
  alignas(64) T made[block];
  bool stream = n * int64_t(sizeof(T)) >= bytes_streamed && reinterpret_cast<uintptr_t>(to) % 16 == 0;
  for (int64_t at = 0; at < n; at += block) {
    int64_t size = std::min(block, n - at);
    T* target = stream ? made : to + at;
    combine_two<Op>(target, from[0] + at, from[1] + at, size);
    for (size_t s = 2; s < sources; ++s) combine_run<Op>(target, from[s] + at, size);
    if (stream) store_past_caches(to + at, made, size_t(size) * sizeof(T));
  }
}

template <class T>
void combine_all(Sbp::Kind reduce, T* to, const T* const* from, size_t sources, int64_t n) {
  vectorized([&] {
    if (reduce == Sbp::Pmax)
      combine_all<CombineMax>(to, from, sources, n);
    else if (reduce == Sbp::Pmin)
      combine_all<CombineMin>(to, from, sources, n);
    else
      combine_all<CombineSum>(to, from, sources, n);
  });
}

template <class T>
void combine_piece(const BoxWalk& walk, Sbp::Kind reduce, const void* from, void* to) {
  for_each_run(walk, [&](int64_t f, int64_t t) {
    auto* source = static_cast<const T*>(from) + f;
    auto* target = static_cast<T*>(to) + t;
    if (reduce == Sbp::Pmax)
      combine_run<CombineMax>(target, source, walk.run);
    else if (reduce == Sbp::Pmin)
      combine_run<CombineMin>(target, source, walk.run);
    else
      combine_run<CombineSum>(target, source, walk.run);
  });
}

Combine combine_of(const Piece& piece) {
  if (!piece.add) return Combine::copy;
  return piece.reduce == Sbp::Pmax ? Combine::max : piece.reduce == Sbp::Pmin ? Combine::min : Combine::sum;
}

}  // namespace

void clear(void* memory, size_t bytes, void* queue) {
  if (bytes == 0) return;
  if (queue)
    zero_cuda(queue, memory, bytes);
  else
    std::memset(memory, 0, bytes);
}

void run_piece(const Piece& piece, DType dtype, const void* from, void* to, void* queue) {
  if (piece.numel() == 0) return;
  BoxWalk walk = walk_of(piece);
  if (queue) return run_box_cuda(queue, walk, dtype, combine_of(piece), from, to);
  if (!piece.add) {
    auto width = size_t(bytes_of(dtype));
    for_each_run(walk, [&](int64_t f, int64_t t) {
      std::memcpy(static_cast<std::byte*>(to) + size_t(t) * width,
                  static_cast<const std::byte*>(from) + size_t(f) * width, size_t(walk.run) * width);
    });
    return;
  }
  if (dtype == DType::bfloat16) return combine_piece<BFloat16>(walk, piece.reduce, from, to);
  if (dtype == DType::float16) return combine_piece<Float16>(walk, piece.reduce, from, to);
  visit_dtype(dtype, [&](auto tag) { combine_piece<typename decltype(tag)::type>(walk, piece.reduce, from, to); });
}

namespace {

constexpr size_t meeting_max = 64;

// How many pieces from the first on meet in one place that is one run of elements on both sides; 1: it stands alone.
size_t meeting(std::span<const PieceFrom> pieces) {
  size_t count = 1;
  auto one_run = [](const Piece& piece) { return walk_of(piece).dims == 0; };
  auto& first = *pieces[0].piece;
  if (first.add || pieces.size() < 2 || !one_run(first)) return 1;
  while (count < std::min(pieces.size(), meeting_max) && pieces[count].piece->add &&
         pieces[count].piece->to == first.to && pieces[count].piece->reduce == pieces[1].piece->reduce &&
         one_run(*pieces[count].piece))
    ++count;
  return count;
}

template <class T>
void run_meeting(std::span<const PieceFrom> pieces, void* to) {
  std::array<const T*, meeting_max> from{};
  for (size_t i = 0; i < pieces.size(); ++i)
    from[i] = static_cast<const T*>(pieces[i].from) + walk_of(*pieces[i].piece).from_begin;
  BoxWalk walk = walk_of(*pieces[0].piece);
  combine_all<T>(pieces[1].piece->reduce, static_cast<T*>(to) + walk.to_begin, from.data(), pieces.size(), walk.run);
}

}  // namespace

void run_pieces(std::span<const PieceFrom> pieces, DType dtype, void* to) {
  for (size_t i = 0; i < pieces.size();) {
    size_t count = pieces[i].piece->numel() > 0 ? meeting(pieces.subspan(i)) : 1;
    auto together = pieces.subspan(i, count);
    if (count == 1)
      run_piece(*pieces[i].piece, dtype, pieces[i].from, to);
    else if (dtype == DType::bfloat16)
      run_meeting<BFloat16>(together, to);
    else if (dtype == DType::float16)
      run_meeting<Float16>(together, to);
    else
      visit_dtype(dtype, [&](auto tag) { run_meeting<typename decltype(tag)::type>(together, to); });
    i += count;
  }
}

}  // namespace sluice
