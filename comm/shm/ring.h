// SPDX-License-Identifier: Apache-2.0
// Doorbells from one process to another, in memory that only their sender writes.
//
//   page of A for B (B maps it for reading)          page of B for A (A maps it for reading)
//   [ places: A's doorbells, a ring ]  ---------->   [ head: how many of them B has taken ]
//   [ head: how many of B's A has taken ]  <-------  [ places: B's doorbells, a ring      ]
//   [ asleep, beats, blocked: A's ]                  [ asleep, beats, blocked: B's        ]
//
// What does not fit into the ring waits with its sender, in order. Credits bound both: a slot has at most one doorbell
// out each way. Nothing that is read of the other side's page is trusted.
// Thread rule: a Writer and a Reader are used by one thread at a time each; `reader.waiting()` from any.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <type_traits>

#include "base/shape.h"

namespace sluice::shm {

enum class Kind : uint32_t { arrival, release, refresh, refreshed };

inline constexpr uint32_t no_segment = UINT32_MAX;

struct Doorbell {
  Kind kind = Kind::arrival;
  uint32_t wire = 0, slot = 0;
  uint32_t segment = no_segment;
  uint64_t offset = 0, bytes = 0;
  uint64_t ticket = 0;  // of a refresh and its answer
  SlotHeader header{};
};

struct alignas(64) Place {
  std::atomic<uint64_t> turn{0};  // 1 + how many doorbells came before the one that it holds
  Doorbell bell;
};

inline constexpr uint64_t ring_places = 512;

// Fresh shared memory is zero, which is a valid empty page.
struct Page {
  alignas(64) std::atomic<uint64_t> head;    // of the other side's doorbells: taken
  std::atomic<uint32_t> blocked;             // doorbells wait for room in the ring: call after taking some
  alignas(64) std::atomic<uint64_t> asleep;  // odd: call after ringing, once for each value
  alignas(64) std::atomic<uint64_t> beats;   // counts up while its owner runs
  alignas(64) Place places[ring_places];
};
static_assert(sizeof(Place) == 128 && std::is_trivially_copyable_v<Doorbell>);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

class Writer {
 public:
  Writer(Page& mine, const Page& theirs) : mine_(mine), theirs_(theirs) {}
  // False: the other side's head is none that an honest peer can have.
  bool push(const Doorbell& bell);
  bool flush();  // moves on what waits
  bool blocked() const { return !waiting_.empty(); }

 private:
  bool has_room(bool& honest);
  void put(const Doorbell& bell);

  Page& mine_;
  const Page& theirs_;
  uint64_t tail_ = 0, head_ = 0;
  std::deque<Doorbell> waiting_;
};

class Reader {
 public:
  Reader(Page& mine, const Page& theirs) : mine_(mine), theirs_(theirs) {}
  bool waiting() const {
    uint64_t head = mine_.head.load(std::memory_order_relaxed);
    return theirs_.places[head % ring_places].turn.load() == head + 1;
  }
  bool pop(Doorbell& bell);
  // After a batch: whether the other side waits for the room that it made.
  bool should_call() {
    mine_.head.store(mine_.head.load(std::memory_order_relaxed));  // ordered before the look at `blocked`
    return theirs_.blocked.load() != 0;
  }

 private:
  Page& mine_;
  const Page& theirs_;
};

}  // namespace sluice::shm
