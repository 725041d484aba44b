// SPDX-License-Identifier: Apache-2.0
#include "kernels/strided.h"

#include <algorithm>
#include <cstring>

#include "kernels/parallel.h"

namespace sluice {
namespace {

constexpr int64_t tile = 16;                        // of a transpose: two of its blocks fit the first cache level
constexpr int64_t parallel_elements_min = 1 << 15;  // a thread's share

struct Plane {  // the last two dims of the output
  int64_t rows = 1, columns = 1, row_stride = 0, column_stride = 0;
};

template <class T>
void copy_plane(T* out, const T* in, const Plane& p) {
  if (p.column_stride == 1) {
    for (int64_t r = 0; r < p.rows; ++r)
      std::memcpy(out + r * p.columns, in + r * p.row_stride, size_t(p.columns) * sizeof(T));
    return;
  }
  if (p.column_stride == 0) {
    for (int64_t r = 0; r < p.rows; ++r) std::fill_n(out + r * p.columns, p.columns, in[r * p.row_stride]);
    return;
  }
  for (int64_t r0 = 0; r0 < p.rows; r0 += tile)
    for (int64_t c0 = 0; c0 < p.columns; c0 += tile) {
      int64_t rows = std::min(r0 + tile, p.rows), columns = std::min(c0 + tile, p.columns);
      for (int64_t r = r0; r < rows; ++r)
        for (int64_t c = c0; c < columns; ++c) out[r * p.columns + c] = in[r * p.row_stride + c * p.column_stride];
    }
}

template <class T>
void copy_typed(const View& out, const T* in, const std::array<int64_t, rank_max>& stride, int threads) {
  Plane plane;
  int rank = out.rank;
  if (rank >= 1) plane.columns = out.dims[size_t(rank) - 1], plane.column_stride = stride[size_t(rank) - 1];
  if (rank >= 2) plane.rows = out.dims[size_t(rank) - 2], plane.row_stride = stride[size_t(rank) - 2];
  int64_t area = plane.rows * plane.columns, planes = out.numel() / area;
  auto copy_part = [&](int64_t job, Range rows) {
    int64_t rest = job, offset = 0;
    for (int d = rank - 3; d >= 0; --d) {
      offset += rest % out.dims[size_t(d)] * stride[size_t(d)];
      rest /= out.dims[size_t(d)];
    }
    copy_plane(out.as<T>() + job * area + rows.begin * plane.columns, in + offset + rows.begin * plane.row_stride,
               {rows.size, plane.columns, plane.row_stride, plane.column_stride});
  };
  if (planes >= threads) {
    return parallel_for(threads, planes, std::max<int64_t>(parallel_elements_min / area, 1),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t job = begin; job < end; ++job) copy_part(job, {0, plane.rows});
                        });
  }
  for (int64_t job = 0; job < planes; ++job)
    parallel_for(
        threads, plane.rows, std::max<int64_t>(parallel_elements_min / plane.columns, 1),
        [&](int64_t begin, int64_t end) {
          copy_part(job, {begin, end - begin});
        },
        tile);
}

}  // namespace

std::array<int64_t, rank_max> row_strides(const View& view) {
  std::array<int64_t, rank_max> stride{};
  int64_t step = 1;
  for (int d = view.rank - 1; d >= 0; --d) {
    stride[size_t(d)] = step;
    step *= view.dims[size_t(d)];
  }
  return stride;
}

void copy_strided(const View& out, const void* in, const std::array<int64_t, rank_max>& stride, int threads) {
  if (out.numel() == 0) return;
  switch (bytes_of(out.dtype)) {
    case 1: return copy_typed(out, static_cast<const uint8_t*>(in), stride, threads);
    case 2: return copy_typed(out, static_cast<const uint16_t*>(in), stride, threads);
    case 4: return copy_typed(out, static_cast<const uint32_t*>(in), stride, threads);
    default: return copy_typed(out, static_cast<const uint64_t*>(in), stride, threads);
  }
}

void copy_same(const Call& call) {
  auto &in = call.in[0], &out = call.out[0];
  check(in.numel() == out.numel(), "a change of shape kept the number of elements");
  if (out.numel() > 0 && out.data != in.data) std::memcpy(out.data, in.data, size_t(out.numel() * bytes_of(out.dtype)));
}

}  // namespace sluice
