// SPDX-License-Identifier: Apache-2.0
// The ends of wires by id, as transports look them up for every message.
// The table grows by replacement: readers take no lock, and old tables live until the end (they are at most as large
// as the last). Nothing is allocated after the wires are open.
// Thread rule: find() from any thread; add() one at a time, also while others find.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/transport.h"

namespace sluice {

inline std::string text_of(const Wire& wire) {
  return "wire " + std::to_string(wire.id) + " (rank " + std::to_string(wire.from_rank) + " to " +
         std::to_string(wire.to_rank) + ")";
}

template <class End>  // has a member `wire`
class WireTable {
 public:
  WireTable() { grow(64); }

  End* find(uint32_t id) const { return table_.load(std::memory_order_acquire)->find(id); }
  // The id must be new. What `end` holds is seen by whoever finds it.
  End& add(std::unique_ptr<End> end) {
    ends_.push_back(std::move(end));
    if (2 * ends_.size() > tables_.back()->places.size())
      grow(2 * tables_.back()->places.size());
    else
      tables_.back()->add(ends_.back().get());
    return *ends_.back();
  }

 private:
  // Open addressing; at most half full.
  struct Table {
    std::vector<std::atomic<End*>> places;
    explicit Table(size_t size) : places(size) {}

    End* find(uint32_t id) const {
      size_t mask = places.size() - 1;
      for (size_t i = spread(id) & mask;; i = (i + 1) & mask) {
        End* end = places[i].load(std::memory_order_acquire);
        if (!end || end->wire.id == id) return end;
      }
    }
    void add(End* end) {
      size_t mask = places.size() - 1, i = spread(end->wire.id) & mask;
      while (places[i].load(std::memory_order_relaxed)) i = (i + 1) & mask;
      places[i].store(end, std::memory_order_release);
    }
    static size_t spread(uint32_t id) { return (id * 0x9E3779B97F4A7C15ull) >> 32; }
  };

  void grow(size_t size) {
    tables_.push_back(std::make_unique<Table>(size));
    for (auto& end : ends_) tables_.back()->add(end.get());
    table_.store(tables_.back().get(), std::memory_order_release);
  }

  std::vector<std::unique_ptr<End>> ends_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::atomic<Table*> table_{nullptr};
};

}  // namespace sluice
