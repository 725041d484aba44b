// SPDX-License-Identifier: Apache-2.0
#include "base/shape.h"

#include "base/error.h"

namespace sluice {

Shape fixed_shape(const std::vector<int64_t>& sizes) {
  Shape shape;
  for (int64_t size : sizes) shape.push_back({size});
  return shape;
}

std::vector<int64_t> sizes_of(const Shape& shape) {
  std::vector<int64_t> sizes;
  for (auto& dim : shape) sizes.push_back(dim.size);
  return sizes;
}

int64_t numel(const Shape& shape) {
  int64_t n = 1;
  for (auto& dim : shape)
    if (dim.size < 0 || __builtin_mul_overflow(n, dim.size, &n))
      throw Error(Code::value, "the shape " + text_of(shape) + " has too many elements or a negative dim");
  return n;
}

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (auto& dim : shape) {
    if (text.size() > 1) text += ",";
    text += std::to_string(dim.size);
    if (dim.sym != fixed_sym) text += char('a' + dim.sym);
    if (dim.granule != 1) text += "*" + std::to_string(dim.granule);
  }
  return text + "]";
}

Window window_of(const SlotHeader& header) {
  Window window;
  window.whole = header.extent;
  for (int s = 0; s < syms_max; ++s)
    window.valid[s] = piece_of(header.extent[s], header.micro_batches, header.micro_batch);
  return window;
}

Window whole_window(const std::array<int64_t, syms_max>& extent) {
  Window window;
  window.whole = extent;
  for (int s = 0; s < syms_max; ++s) window.valid[s] = {0, extent[s]};
  return window;
}

}  // namespace sluice
