// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/frames.h"

#include <algorithm>

namespace sluice {

bool FrameCheck::take(std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size();) {
    if (skip_ > 0) {
      uint64_t step = std::min<uint64_t>(skip_, bytes.size() - i);
      skip_ -= step, i += step;
      continue;
    }
    word_ |= uint32_t(bytes[i++]) << (8 * word_bytes_);
    if (++word_bytes_ < 4) continue;
    uint32_t word = word_;
    word_ = 0, word_bytes_ = 0;
    if (!take_word(word)) return false;
  }
  return true;
}

// A head is the number of segments less one, then each one's size in words of 8 bytes, padded to 8 bytes.
bool FrameCheck::take_word(uint32_t word) {
  if (segments_ == 0) {
    if (word >= segments_max) return false;
    segments_ = word + 1, seen_ = 0, bytes_ = 0;
    return true;
  }
  bytes_ += uint64_t(word) * 8;
  if (bytes_ > message_bytes_max) return false;
  if (++seen_ < segments_) return true;
  skip_ = bytes_ + (segments_ % 2 == 0 ? 4 : 0);
  segments_ = 0;
  return true;
}

}  // namespace sluice
