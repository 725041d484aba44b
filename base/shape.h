// SPDX-License-Identifier: Apache-2.0
// Logical shapes. A dim is fixed, or *bounded*: its size is `granule` times the run-time extent of a symbol
// (the batch), which never exceeds the bound that memory was planned for.
// Invariants: sym == fixed_sym -> granule == 1; otherwise size == granule * bound(sym).
// Thread rule: values.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

inline constexpr int fixed_sym = 0;
inline constexpr int batch_sym = 1;  // the global batch; further symbols (sequence lengths) follow
inline constexpr int syms_max = 4;
inline constexpr int rank_max = 8;

struct Dim {
  int64_t size = 0;     // the bound
  int32_t sym = fixed_sym;
  int64_t granule = 1;  // elements per unit of the symbol
  bool operator==(const Dim&) const = default;
};
using Shape = std::vector<Dim>;

Shape fixed_shape(const std::vector<int64_t>& sizes);
std::vector<int64_t> sizes_of(const Shape& shape);
int64_t numel(const Shape& shape);       // of the bound; checked against overflow (throws Error)
std::string text_of(const Shape& shape);  // "[128b,784]": b marks the batch symbol, "[256b*2]" its granule

// A half-open range of one dim.
struct Range {
  int64_t begin = 0, size = 0;
  bool operator==(const Range&) const = default;
};

// Piece i of n of `size` units, balanced: the first size % n pieces are one unit larger.
constexpr Range piece_of(int64_t size, int64_t n, int64_t i) {
  int64_t base = size / n, rest = size % n;
  return {i * base + (i < rest ? i : rest), base + (i < rest ? 1 : 0)};
}
constexpr int64_t piece_bound(int64_t size, int64_t n) { return (size + n - 1) / n; }

// What part of each symbol a firing works on: a micro-batch is an offset into the whole batch.
struct Window {
  std::array<Range, syms_max> valid{};  // per symbol: [begin, begin+size) of the whole batch
  std::array<int64_t, syms_max> whole{};  // per symbol: the whole batch's extent
  bool operator==(const Window&) const = default;
};

// The header of every slot: which firing filled it and how much of each bounded dim is valid.
struct SlotHeader {
  int64_t step = 0;
  int32_t micro_batch = 0, micro_batches = 1;
  int64_t sequence = 0;
  int64_t bytes_valid = 0;
  uint32_t epoch = 0;  // of the plan: late messages of an old one are dropped
  std::array<int64_t, syms_max> extent{};  // per symbol, of the whole batch
};

// The window of a micro-batch: the balanced piece `micro_batch` of `micro_batches` of each symbol's extent.
Window window_of(const SlotHeader& header);
// The whole batch as one window (micro_batches == 1) of the given extents.
Window whole_window(const std::array<int64_t, syms_max>& extent);

}  // namespace sluice
