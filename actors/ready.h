// SPDX-License-Identifier: Apache-2.0
// The ready actors of a stream: a bitmap in the order of keys with one summary level, so that the first one is found
// in two looks for up to 4,096 actors.
// Thread rule: one thread.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

namespace sluice {

class Ready {
 public:
  explicit Ready(uint32_t size = 0) : words_((size + 63) / 64), summary_((words_.size() + 63) / 64) {}

  void set(uint32_t place) {
    words_[place / 64] |= uint64_t(1) << (place % 64);
    summary_[place / 4096] |= uint64_t(1) << (place / 64 % 64);
  }
  void clear(uint32_t place) {
    if ((words_[place / 64] &= ~(uint64_t(1) << (place % 64))) == 0)
      summary_[place / 4096] &= ~(uint64_t(1) << (place / 64 % 64));
  }
  static constexpr uint32_t none = ~0u;
  uint32_t first() const {
    for (uint32_t s = 0; s < summary_.size(); ++s)
      if (summary_[s]) {
        uint32_t word = s * 64 + uint32_t(std::countr_zero(summary_[s]));
        return word * 64 + uint32_t(std::countr_zero(words_[word]));
      }
    return none;
  }
  void clear_all() { *this = Ready(uint32_t(words_.size()) * 64); }

 private:
  std::vector<uint64_t> words_, summary_;
};

}  // namespace sluice
