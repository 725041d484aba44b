// SPDX-License-Identifier: Apache-2.0
// The sending ends of wires, and which chunk goes to a peer next: a chunk of each wire that has one, in turn, so that
// 64 MiB of one wire hold nothing else up.
// Invariants: a slot's memory is free, and its credit back, only when the peer has released it and no chunk of it is
// under way; a refresh starts when nothing of its wire is under way.
// Thread rule: OutSlot::busy and pushes of tasks from any thread; all else on the progress thread.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "comm/ucx/inbox.h"
#include "comm/ucx/message.h"

namespace sluice::ucx {

// What other threads ask the progress thread to do.
struct Task : InboxNode {
  enum class What : uint8_t { connect, send, refresh, release, stop } what;
  explicit Task(What w) : what(w) {}
};

struct OutWire;

// What a slot gets, on its way.
struct Transfer : Task {
  explicit Transfer(What w) : Task(w) {}
  OutWire* wire = nullptr;
  uint32_t slot = 0;
  SlotWords words;
  const std::byte* data = nullptr;
  uint64_t bytes = 0;

  uint64_t sequence = 0, chunks = 0, next_chunk = 0;
  uint64_t flying = 0;        // chunks that UCX holds
  bool acknowledged = false;  // released, or refreshed
  Transfer* behind = nullptr;

  bool done() const { return acknowledged && flying == 0; }
};

// A refresh that its caller waits for.
struct Refresh : Transfer {
  Refresh() : Transfer(What::refresh) {}
  std::shared_ptr<Refresh> self;  // on its way to the progress thread
  void finish(std::string why);   // empty: the peer has it
  std::string wait();

 private:
  std::mutex mutex_;
  std::condition_variable finished_;
  std::optional<std::string> outcome_;
};

struct OutSlot {
  Transfer transfer{Task::What::send};
  std::atomic<bool> busy{false};  // sent and not yet released
};

struct OutWire {
  OutWire(const Wire& w, int peer, std::function<void(uint32_t)> on_release);
  const Wire wire;
  const int peer;
  const std::function<void(uint32_t)> on_release;
  const std::unique_ptr<OutSlot[]> slots;

  Transfer *first = nullptr, *last = nullptr;  // not all chunks of them are sent
  Refresh* refresh = nullptr;
  uint64_t tokens = 0, refreshes = 0;
  uint64_t flying = 0;
  bool in_turn = false;
  OutWire* after = nullptr;
};

struct Chunk {
  Transfer* transfer = nullptr;
  uint64_t index = 0;
  uint64_t offset = 0, bytes = 0;
};

// All that goes to one peer.
class Outgoing {
 public:
  explicit Outgoing(uint64_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}
  void add(Transfer& transfer);
  std::optional<Chunk> next();  // it flies from now on
  bool waits() const { return head_ != nullptr; }
  void landed(Transfer& transfer);
  // What the peer says of a slot of ours; a text: why it cannot be true.
  std::string release(OutWire& wire, const CreditWords& words);
  std::string refreshed(OutWire& wire, uint32_t slot, uint64_t sequence);
  // The peer is lost: nothing is released any more, and refreshes fail. What UCX still holds stays until the end.
  void fail(const std::string& why);

 private:
  bool ready(const OutWire& wire) const;
  void take_turn(OutWire& wire);
  void finish(Transfer& transfer);

  uint64_t chunk_bytes_;
  OutWire *head_ = nullptr, *tail_ = nullptr;
  bool failed_ = false;
  std::string failed_why_;
  std::vector<std::shared_ptr<Refresh>> refreshes_;  // that are waited for, or were when the peer was lost
};

}  // namespace sluice::ucx
