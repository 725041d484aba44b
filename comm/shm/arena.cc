// SPDX-License-Identifier: Apache-2.0
#include "comm/shm/arena.h"

#include <string.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <string>

#include "base/error.h"

namespace sluice::shm {

namespace {

constexpr size_t alignment = 64;
constexpr size_t segment_bytes_min = size_t(1) << 20, segment_bytes_max = size_t(64) << 20;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Shared memory comes page by page when it is touched, and then it is too late for an error.
void check_machine(size_t bytes) {
  struct sysinfo machine {};
  sysinfo(&machine);
  size_t most = (machine.totalram + machine.totalswap) * machine.mem_unit;
  if (most != 0 && bytes > most)
    throw Error(
        Code::failed,
        "no memory: " + std::to_string(bytes) + " bytes are asked for, this machine has " + std::to_string(most), {},
        "use fewer or smaller slots, or a machine with more memory");
}

}  // namespace

Arena::Arena() {
  indices_.push_back(std::make_unique<Index>());
  index_ = indices_.back().get();
}

void* Arena::allocate(size_t bytes) {
  check_machine(bytes);
  bytes = round_up(std::max<size_t>(bytes, 1), alignment);
  std::lock_guard lock(mutex_);
  for (auto& segment : segments_)
    if (std::byte* place = segment->take(bytes)) {
      live_[place] = {segment.get(), bytes};
      return place;
    }
  std::byte* place = grow(bytes);
  live_[place] = {segments_.back().get(), bytes};
  return place;
}

void Arena::release(void* memory) {
  if (!memory) return;
  std::lock_guard lock(mutex_);
  auto live = live_.find(memory);
  check(live != live_.end(), "memory is released that the arena has not handed out");
  Segment& segment = *live->second.segment;
  segment.give(size_t(static_cast<std::byte*>(memory) - segment.shared.memory.data()), live->second.bytes);
  live_.erase(live);
}

std::byte* Arena::grow(size_t bytes) {
  // Twice as large every time: a run has few segments, and each is a descriptor.
  size_t usual = std::min(segment_bytes_max, segment_bytes_min << std::min<size_t>(segments_.size(), 10));
  size_t unit = bytes > usual ? segment_bytes_min : 4096;
  auto segment = std::make_unique<Segment>();
  segment->shared = make_shared_memory("sluice-arena", round_up(std::max(bytes, usual), unit));
  segment->free[0] = segment->shared.memory.bytes();
  std::byte* place = segment->take(bytes);
  auto index = std::make_unique<Index>(*indices_.back());
  index->push_back(segment.get());
  segments_.push_back(std::move(segment));
  index_.store(index.get(), std::memory_order_release);
  indices_.push_back(std::move(index));
  return place;
}

std::byte* Arena::Segment::take(size_t bytes) {
  auto hole = std::find_if(free.begin(), free.end(), [&](auto& h) { return h.second >= bytes; });
  if (hole == free.end()) return nullptr;
  auto [offset, size] = *hole;
  free.erase(hole);
  if (size > bytes) free[offset + bytes] = size - bytes;
  std::byte* place = shared.memory.data() + offset;
  if (offset < used) memset(place, 0, std::min(bytes, used - offset));
  used = std::max(used, offset + bytes);
  return place;
}

void Arena::Segment::give(size_t offset, size_t bytes) {
  auto next = free.lower_bound(offset);
  if (next != free.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free.erase(next);
  }
  if (next != free.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += bytes;
      return;
    }
  }
  free[offset] = bytes;
}

std::optional<Spot> Arena::find(const std::byte* data, size_t bytes) const {
  const Index& index = *index_.load(std::memory_order_acquire);
  for (size_t id = index.size(); id-- > 0;) {  // the last are the largest
    const Mapping& memory = index[id]->shared.memory;
    if (data < memory.data() || data >= memory.data() + memory.bytes()) continue;
    size_t offset = size_t(data - memory.data());
    if (bytes > memory.bytes() - offset) return std::nullopt;
    return Spot{uint32_t(id), offset};
  }
  return std::nullopt;
}

Arena::Part Arena::part(uint32_t segment) const {
  const Segment& found = *index_.load(std::memory_order_acquire)->at(segment);
  return {found.shared.fd.get(), found.shared.memory.bytes()};
}

}  // namespace sluice::shm
