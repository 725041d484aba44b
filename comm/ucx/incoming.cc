// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/incoming.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"
#include "comm/wire_table.h"

namespace sluice::ucx {

namespace {

constexpr size_t page_bytes = 4096, huge_page_bytes = size_t(2) << 20;

size_t up_to(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Small slots share pages.
size_t stride_of(size_t bytes) { return std::max(up_to(bytes, bytes < page_bytes ? 64 : page_bytes), size_t(64)); }

std::byte* allocate(const Wire& wire) {
  size_t bytes = 0;
  if (wire.bytes_max > SIZE_MAX / 2 || __builtin_mul_overflow(stride_of(wire.bytes_max), size_t(wire.slots), &bytes) ||
      bytes > SIZE_MAX / 2)
    throw Error(Code::value, text_of(wire) + " is larger than any memory");
  bool huge = bytes >= 2 * huge_page_bytes;
  size_t unit = huge ? huge_page_bytes : bytes < page_bytes ? 64 : page_bytes;
  bytes = up_to(bytes, unit);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(unit, bytes));
  if (!memory)
    throw Error(Code::failed, "no memory for the " + std::to_string(bytes >> 20) + " MiB of slots of " + text_of(wire));
  if (huge) madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

InWire::InWire(const Wire& w, int p, uint64_t chunk_bytes, std::function<void(const Arrival&)> on_arrival)
    : wire(w),
      peer(p),
      chunk_bytes_(chunk_bytes),
      on_arrival_(std::move(on_arrival)),
      memory_(allocate(w)),
      slots_(std::make_unique<InSlot[]>(w.slots)),
      order_(w.slots) {
  size_t words = chunks_of(w.bytes_max, chunk_bytes) / 64 + 1;
  for (uint32_t i = 0; i < w.slots; ++i) {
    InSlot& slot = slots_[i];
    slot.wire = this;
    slot.slot = i;
    slot.memory = memory_.get() + i * stride_of(w.bytes_max);
    slot.seen.resize(words);
  }
}

InSlot* InWire::admit(const MessageHeader& header, const SlotWords* words, std::string& why) {
  auto refuse = [&](const char* reason) {
    why = "it sent " + text_of(wire) + " " + reason;
    return nullptr;
  };
  if (header.slot >= wire.slots) return refuse("for a slot that the wire does not have");
  if (header.total > wire.bytes_max) return refuse("more bytes than a slot holds");
  uint64_t chunks = chunks_of(header.total, chunk_bytes_);
  if (header.chunk >= chunks) return refuse("a chunk beyond the last");
  if (header.bytes != bytes_of_chunk(header.total, chunk_bytes_, header.chunk))
    return refuse("a chunk of a wrong size");
  if ((header.chunk == 0) != (words != nullptr)) return refuse("a chunk with a wrong header");
  InSlot& slot = slots_[header.slot];
  bool refresh = header.flags & flag_refresh;
  bool filling = slot.chunks_left > 0;
  if (!filling && !begin(slot, header, why)) return nullptr;
  if (filling && (slot.refreshing != refresh || slot.sequence != header.sequence || slot.total != header.total))
    return refuse("two things at once for one slot");
  uint64_t bit = uint64_t(1) << header.chunk % 64;
  if (slot.seen[header.chunk / 64] & bit) return refuse("a chunk twice");
  slot.seen[header.chunk / 64] |= bit;
  if (words) slot.header = header_of(*words);
  return &slot;
}

bool InWire::begin(InSlot& slot, const MessageHeader& header, std::string& why) {
  auto state = slot.state.load();
  if (header.flags & flag_refresh) {
    if (header.sequence != next_refresh_ || state == InSlot::State::full) {
      why = "it refreshed " + text_of(wire) + " out of order";
      return false;
    }
    ++next_refresh_;
  } else {
    InSlot*& turn = order_[header.sequence % wire.slots];
    if (state != InSlot::State::empty || header.sequence - next_token_ >= wire.slots || turn) {
      why = "it sent " + text_of(wire) + " without a credit, or out of order";
      return false;
    }
    turn = &slot;
    slot.token = header.sequence;
    slot.state.store(InSlot::State::filling);
  }
  slot.refreshing = header.flags & flag_refresh;
  slot.sequence = header.sequence;
  slot.total = header.total;
  slot.chunks_left = chunks_of(header.total, chunk_bytes_);
  std::fill(slot.seen.begin(), slot.seen.end(), 0);
  return true;
}

bool InWire::land(InSlot& slot) {
  if (--slot.chunks_left > 0) return false;
  if (slot.refreshing) {
    slot.refreshing = false;
    on_arrival_({slot.header, slot.slot, slot.memory, nullptr, true});
    return true;
  }
  slot.state.store(InSlot::State::full);
  announce();
  return false;
}

void InWire::announce() {
  for (;;) {
    InSlot*& turn = order_[next_token_ % wire.slots];
    if (!turn || turn->state.load() != InSlot::State::full) return;
    InSlot& slot = *std::exchange(turn, nullptr);
    ++next_token_;
    slot.state.store(InSlot::State::held);
    on_arrival_({slot.header, slot.slot, slot.memory, nullptr});
  }
}

InSlot& InWire::give_back(uint32_t slot) {
  check(slot < wire.slots && slots_[slot].state.exchange(InSlot::State::released) == InSlot::State::held,
        "a slot is released that was not sent");
  return slots_[slot];
}

CreditWords InWire::clear(InSlot& slot) {
  slot.state.store(InSlot::State::empty);
  return {wire.id, slot.slot, slot.token};
}

}  // namespace sluice::ucx
