// SPDX-License-Identifier: Apache-2.0
// The receiving ends of wires: the slots where what peers send lands, and the order in which it is announced.
//
//   slot:  empty --first chunk--> filling --last chunk--> full --announced--> held --release()--> released --> empty
//
// Nothing that a peer sends is believed: a header that does not fit the wire's state is refused with the reason.
// Invariants: a chunk lands at most once; arrivals are announced in the order of their sends.
// Thread rule: give_back() and OutSlot's state from any thread; all else on the progress thread.
#pragma once
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "comm/ucx/message.h"
#include "comm/ucx/outgoing.h"

namespace sluice::ucx {

struct InWire;

struct InSlot : Task {
  InSlot() : Task(What::release) {}
  enum class State : uint8_t { empty, filling, full, held, released };
  InWire* wire = nullptr;
  uint32_t slot = 0;
  std::byte* memory = nullptr;
  std::atomic<State> state{State::empty};

  // What lands: a token, or a refresh of what is there.
  bool refreshing = false;
  uint64_t sequence = 0, total = 0, token = 0;
  uint64_t chunks_left = 0;
  std::vector<uint64_t> seen;  // a bit a chunk
  SlotHeader header;
};

class InWire {
 public:
  // Throws Error when there is no memory for the slots.
  InWire(const Wire& w, int peer, uint64_t chunk_bytes, std::function<void(const Arrival&)> on_arrival);
  const Wire wire;
  const int peer;

  // Where the chunk goes; null: why it is refused. `words`: of the first chunk.
  InSlot* admit(const MessageHeader& header, const SlotWords* words, std::string& why);
  std::byte* place_of(const InSlot& slot, const MessageHeader& header) const {
    return slot.memory + header.chunk * chunk_bytes_;
  }
  // The chunk is there. True: it was a refresh's last, which is to be acknowledged.
  bool land(InSlot& slot);
  // The consumer is done with it. Aborts when it does not hold it.
  InSlot& give_back(uint32_t slot);
  // On the progress thread: the slot may be filled again; its credit.
  CreditWords clear(InSlot& slot);

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  bool begin(InSlot& slot, const MessageHeader& header, std::string& why);
  void announce();

  const uint64_t chunk_bytes_;
  const std::function<void(const Arrival&)> on_arrival_;
  std::unique_ptr<std::byte[], Free> memory_;
  const std::unique_ptr<InSlot[]> slots_;
  std::vector<InSlot*> order_;  // by token modulo slots
  uint64_t next_token_ = 0, next_refresh_ = 0;
};

}  // namespace sluice::ucx
