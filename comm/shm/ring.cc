// SPDX-License-Identifier: Apache-2.0
#include "comm/shm/ring.h"

#include <string.h>

namespace sluice::shm {

bool Writer::has_room(bool& honest) {
  if (tail_ - head_ < ring_places) return true;
  uint64_t head = theirs_.head.load();
  honest = head - head_ <= tail_ - head_;  // it only grows, and never beyond what was rung
  if (honest) head_ = head;
  return tail_ - head_ < ring_places;
}

void Writer::put(const Doorbell& bell) {
  Place& place = mine_.places[tail_ % ring_places];
  memcpy(static_cast<void*>(&place.bell), &bell, sizeof bell);
  // Sequentially consistent: either the other side sees it before it falls asleep, or we see that it is asleep.
  place.turn.store(++tail_);
}

bool Writer::push(const Doorbell& bell) {
  bool honest = true;
  if (waiting_.empty() && has_room(honest)) {
    put(bell);
    return true;
  }
  waiting_.push_back(bell);
  return honest && flush();
}

bool Writer::flush() {
  bool honest = true;
  auto move_on = [&] {
    for (; !waiting_.empty() && has_room(honest); waiting_.pop_front()) put(waiting_.front());
  };
  move_on();
  if (!waiting_.empty() && honest) {
    mine_.blocked.store(1);
    move_on();  // the other side may have made room just before it could see that
  }
  if (waiting_.empty()) mine_.blocked.store(0);
  return honest;
}

bool Reader::pop(Doorbell& bell) {
  uint64_t head = mine_.head.load(std::memory_order_relaxed);
  const Place& place = theirs_.places[head % ring_places];
  if (place.turn.load(std::memory_order_acquire) != head + 1) return false;
  memcpy(static_cast<void*>(&bell), &place.bell, sizeof bell);  // a copy: what is checked is what is used
  mine_.head.store(head + 1, std::memory_order_release);
  return true;
}

}  // namespace sluice::shm
