// SPDX-License-Identifier: Apache-2.0
// Copies and combinations of equal boxes of two dense arrays, as moves do them: the walk over a box, how two elements
// are combined, and the device's functions for both.
// Thread rule: pure but for the buffers; on a device, that of the queue.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/shape.h"
#include "kernels/narrow.h"

namespace sluice {

// In elements, innermost first. The innermost dims that are whole on both sides are one run.
struct BoxWalk {
  std::array<int64_t, rank_max> size{}, from_step{}, to_step{};
  int dims = 0;
  int64_t run = 1, from_begin = 0, to_begin = 0;
};

enum class Combine : uint8_t { copy, sum, max, min };

struct CombineSum {
  template <class T>
  static constexpr T of(T a, T b) {
    if constexpr (std::is_same_v<T, bool>)
      return a || b;
    else if constexpr (std::is_integral_v<T>)
      return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
    else
      return a + b;
  }
};
// NaN wins: a wrong number must not vanish in a maximum.
struct CombineMax {
  template <class T>
  static constexpr T of(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct CombineMin {
  template <class T>
  static constexpr T of(T a, T b) {
    return a < b || a != a ? a : b;
  }
};

template <class Op, class T>
constexpr T combined(T a, T b) {
  if constexpr (std::is_arithmetic_v<T>)
    return Op::template of<T>(a, b);
  else
    return T::narrow(Op::template of<float>(T::widen(a), T::widen(b)));
}

// Enqueued on DeviceStream::queue(); null in a build without nvcc.
[[gnu::weak]] void run_box_cuda(void* queue, const BoxWalk& walk, DType dtype, Combine combine, const void* from,
                                void* to);
[[gnu::weak]] void zero_cuda(void* queue, void* memory, size_t bytes);

}  // namespace sluice
