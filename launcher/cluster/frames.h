// SPDX-License-Identifier: Apache-2.0
// Looks at the head of each Cap'n Proto message before Cap'n Proto does: the 0.9.2 library adds up what the head claims
// without a look at overflow, and reserves it.
// Thread rule: one thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

class FrameCheck {
 public:
  static constexpr uint64_t message_bytes_max = 8 << 20;
  static constexpr uint32_t segments_max = 512;

  // The next bytes of the stream, in pieces of any size; false: no message of ours begins so, and none follows.
  bool take(std::span<const std::byte> bytes);

 private:
  bool take_word(uint32_t word);

  uint32_t segments_ = 0, seen_ = 0;  // of the head that is being read; 0: none
  uint64_t bytes_ = 0;                // that its segments claim
  uint64_t skip_ = 0;                 // of the head's padding and the body
  uint32_t word_ = 0;
  int word_bytes_ = 0;
};

}  // namespace sluice
