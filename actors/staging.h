// SPDX-License-Identifier: Apache-2.0
// Pinned host memory beside the slots of one register, for copies between host and device. Nothing on a synchronous
// device, where the host uses the slots themselves.
// Thread rule: one thread.
#pragma once
#include "actors/body.h"

namespace sluice {

class Staging {
 public:
  Staging(Device& device, size_t bytes, size_t slots) : device_(device), bytes_(bytes), busy_(slots) {
    if (device.async()) memory_ = static_cast<std::byte*>(device.allocate_pinned(std::max<size_t>(bytes * slots, 64)));
  }
  ~Staging() {
    if (memory_) device_.release_pinned(memory_);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::byte* slot(size_t i) const { return memory_ + i * bytes_; }
  // The copy that last used a slot of staging; null when it is done.
  EventPtr pending(size_t slot) {
    if (busy_[slot] && busy_[slot]->done()) busy_[slot] = nullptr;
    return busy_[slot];
  }
  void use(size_t slot, EventPtr event) { busy_[slot] = std::move(event); }

 private:
  Device& device_;
  size_t bytes_;
  std::byte* memory_ = nullptr;
  std::vector<EventPtr> busy_;
};

}  // namespace sluice
