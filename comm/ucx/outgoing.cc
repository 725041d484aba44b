// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/outgoing.h"

#include <utility>

#include "comm/wire_table.h"

namespace sluice::ucx {

void Refresh::finish(std::string why) {
  std::lock_guard lock(mutex_);
  outcome_ = std::move(why);
  finished_.notify_all();
}

std::string Refresh::wait() {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return outcome_.has_value(); });
  return *outcome_;
}

OutWire::OutWire(const Wire& w, int p, std::function<void(uint32_t)> callback)
    : wire(w), peer(p), on_release(std::move(callback)), slots(std::make_unique<OutSlot[]>(w.slots)) {
  for (uint32_t slot = 0; slot < w.slots; ++slot) {
    slots[slot].transfer.wire = this;
    slots[slot].transfer.slot = slot;
  }
}

void Outgoing::add(Transfer& transfer) {
  OutWire& wire = *transfer.wire;
  bool refresh = transfer.what == Task::What::refresh;
  if (failed_) {
    if (refresh) std::exchange(static_cast<Refresh&>(transfer).self, nullptr)->finish(failed_why_);
    return;
  }
  transfer.sequence = refresh ? wire.refreshes++ : wire.tokens++;
  transfer.chunks = chunks_of(transfer.bytes, chunk_bytes_);
  transfer.next_chunk = 0;
  transfer.acknowledged = false;
  transfer.behind = nullptr;
  if (refresh) {
    wire.refresh = static_cast<Refresh*>(&transfer);
    refreshes_.push_back(std::move(wire.refresh->self));
  }
  (wire.first ? wire.last->behind : wire.first) = &transfer;
  wire.last = &transfer;
  take_turn(wire);
}

bool Outgoing::ready(const OutWire& wire) const {
  return wire.first && (wire.first->what != Task::What::refresh || wire.first->next_chunk > 0 || wire.flying == 0);
}

void Outgoing::take_turn(OutWire& wire) {
  if (wire.in_turn || !ready(wire)) return;
  wire.in_turn = true;
  wire.after = nullptr;
  (tail_ ? tail_->after : head_) = &wire;
  tail_ = &wire;
}

std::optional<Chunk> Outgoing::next() {
  if (!head_) return std::nullopt;
  OutWire& wire = *head_;
  head_ = wire.after;
  if (!head_) tail_ = nullptr;
  wire.in_turn = false;
  Transfer& transfer = *wire.first;
  Chunk chunk{&transfer, transfer.next_chunk++};
  chunk.offset = chunk.index * chunk_bytes_;
  chunk.bytes = bytes_of_chunk(transfer.bytes, chunk_bytes_, chunk.index);
  ++transfer.flying;
  ++wire.flying;
  if (transfer.next_chunk == transfer.chunks) wire.first = transfer.behind;
  take_turn(wire);
  return chunk;
}

void Outgoing::landed(Transfer& transfer) {
  OutWire& wire = *transfer.wire;
  --transfer.flying;
  --wire.flying;
  if (transfer.done()) finish(transfer);
  take_turn(wire);
}

void Outgoing::finish(Transfer& transfer) {
  if (failed_) return;
  OutWire& wire = *transfer.wire;
  if (transfer.what == Task::What::refresh) {
    Refresh* refresh = std::exchange(wire.refresh, nullptr);
    refresh->finish("");
    std::erase_if(refreshes_, [&](auto& other) { return other.get() == refresh; });
    return;
  }
  uint32_t slot = transfer.slot;
  wire.slots[slot].busy.store(false);
  wire.on_release(slot);
}

void Outgoing::fail(const std::string& why) {
  failed_ = true;
  failed_why_ = why;
  for (auto& refresh : refreshes_) refresh->finish(why);
}

std::string Outgoing::release(OutWire& wire, const CreditWords& words) {
  if (words.slot >= wire.wire.slots) return "it released a slot that " + text_of(wire.wire) + " does not have";
  OutSlot& slot = wire.slots[words.slot];
  Transfer& transfer = slot.transfer;
  // The transfer's fields are the progress thread's from add() on; before it, no chunk is counted.
  if (!slot.busy.load() || transfer.chunks == 0 || transfer.sequence != words.sequence || transfer.acknowledged ||
      transfer.next_chunk != transfer.chunks)
    return "it released a slot of " + text_of(wire.wire) + " that it was not sent";
  transfer.acknowledged = true;
  if (transfer.done()) finish(transfer);
  return "";
}

std::string Outgoing::refreshed(OutWire& wire, uint32_t slot, uint64_t sequence) {
  Refresh* refresh = wire.refresh;
  if (!refresh || refresh->slot != slot || refresh->sequence != sequence || refresh->acknowledged ||
      refresh->next_chunk != refresh->chunks)
    return "it acknowledged what " + text_of(wire.wire) + " was not refreshed with";
  refresh->acknowledged = true;
  if (refresh->done()) finish(*refresh);
  return "";
}

}  // namespace sluice::ucx
