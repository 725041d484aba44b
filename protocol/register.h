// SPDX-License-Identifier: Apache-2.0
// A register as its producer sees it: a ring of slots and, for each, how many readers still hold it.
// Token t lies in slot t % slots. Every reader gives tokens back in order, so slots become free in order too, and an
// index is all that a message needs.
// Invariants: freed <= published <= acquired <= freed + slots.
// Thread rule: owned by the producer's thread.
#pragma once
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace sluice {

class RegisterState {
 public:
  // `initial` tokens are published before the first firing; without readers they are free at once.
  RegisterState(uint32_t slots, uint32_t readers, uint32_t initial)
      : slots_(slots),
        readers_(readers),
        left_(slots, 0),
        next_(initial % slots),
        last_((initial + slots - 1) % slots) {
    check(slots > 0 && initial <= slots, "a register has no slots or more initial tokens than slots");
    for (uint32_t slot = 0; slot < initial; ++slot) left_[slot] = readers;
    full_ = full_max_ = readers ? initial : 0;
  }

  uint32_t slots() const { return slots_; }
  uint32_t readers() const { return readers_; }
  uint32_t credits() const { return slots_ - full_; }  // while no slot is held by the producer
  uint32_t full() const { return full_; }
  uint32_t full_max() const { return full_max_; }
  uint32_t next() const { return next_; }  // the slot that the producer fills now or next
  uint32_t last() const { return last_; }  // the slot published last
  uint32_t left(uint32_t slot) const { return left_[slot]; }

  // The producer starts to fill a slot.
  uint32_t acquire() {
    check(left_[next_] == 0 && !held_, "a slot is filled that a reader still holds");
    held_ = true;
    return next_;
  }

  // The slot held is full. Returns it; true in `free_now` when it has no readers.
  uint32_t publish(bool& free_now) {
    check(held_, "a slot is published that was not acquired");
    held_ = false;
    last_ = next_;
    next_ = next_ + 1 == slots_ ? 0 : next_ + 1;
    left_[last_] = readers_;
    free_now = readers_ == 0;
    if (!free_now && ++full_ > full_max_) full_max_ = full_;
    return last_;
  }

  // A reader is done with a slot. True: it was the last one, and the producer has a credit more.
  bool give_back(uint32_t slot) {
    check(slot < slots_ && left_[slot] > 0, "a slot is given back that its reader did not hold");
    if (--left_[slot] > 0) return false;
    --full_;
    return true;
  }

 private:
  uint32_t slots_, readers_;
  std::vector<uint32_t> left_;  // per slot: readers that hold it
  uint32_t next_, last_, full_ = 0, full_max_ = 0;
  bool held_ = false;
};

}  // namespace sluice
