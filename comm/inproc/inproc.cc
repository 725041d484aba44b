// SPDX-License-Identifier: Apache-2.0
// The transport of one process: an arrival is the sender's own memory, handed over on the sender's thread.
// Nothing is allocated after the wires are open.
#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/wire_table.h"

namespace sluice {

namespace {

struct Line {
  Wire wire;
  std::function<void(uint32_t)> on_release;
  std::function<void(const Arrival&)> on_arrival;
  bool sender = false, receiver = false;
  std::vector<std::atomic<bool>> busy;  // per slot: sent and not yet released
  explicit Line(const Wire& w) : wire(w), busy(w.slots) {}
};

// Counters that many threads add to; each thread mostly has a cache line of its own.
struct alignas(64) Stripe {
  std::atomic<int64_t> inside{0}, bytes{0};
};

class Inproc final : public Transport {
 public:
  ~Inproc() override { close(); }
  std::string_view name() const override { return "inproc"; }
  bool in_place() const override { return true; }

  void open_sender(const Wire& wire, std::function<void(uint32_t)> on_release) override {
    std::lock_guard lock(opening_);
    Line& line = line_of(wire, &Line::sender);
    line.on_release = std::move(on_release);
    line.sender = true;
  }

  void open_receiver(const Wire& wire, std::function<void(const Arrival&)> on_arrival) override {
    std::lock_guard lock(opening_);
    Line& line = line_of(wire, &Line::receiver);
    line.on_arrival = std::move(on_arrival);
    line.receiver = true;
  }

  void send(uint32_t wire, uint32_t slot, const SlotHeader& header, const std::byte* data, size_t bytes,
            const EventPtr& event) override {
    Line& line = open_line(wire);
    check(bytes <= line.wire.bytes_max, "more is sent than a slot of the wire holds");
    Stripe& stripe = enter();
    if (!closed_.load()) {
      check(slot < line.wire.slots && !line.busy[slot].exchange(true), "a slot is sent without a credit");
      if (line.wire.from_rank != line.wire.to_rank) stripe.bytes.fetch_add(int64_t(bytes), std::memory_order_relaxed);
      line.on_arrival({header, slot, data, event});
    }
    stripe.inside.fetch_sub(1, std::memory_order_release);
  }

  void release(uint32_t wire, uint32_t slot) override {
    Line& line = open_line(wire);
    Stripe& stripe = enter();
    if (!closed_.load()) {
      check(slot < line.wire.slots && line.busy[slot].exchange(false), "a slot is released that was not sent");
      line.on_release(slot);
    }
    stripe.inside.fetch_sub(1, std::memory_order_release);
  }

  void refresh(uint32_t wire, uint32_t slot, const SlotHeader& header, const std::byte* data, size_t) override {
    open_line(wire).on_arrival({header, slot, data, nullptr, true});
  }

  // Must not be called from a callback: it waits for those that run.
  void close() override {
    closed_.store(true);
    for (auto& stripe : stripes_)
      while (stripe.inside.load() != 0) std::this_thread::yield();
  }

  int64_t bytes_sent() const override {
    int64_t sum = 0;
    for (auto& stripe : stripes_) sum += stripe.bytes.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  // A callback either sees `closed_` or is seen by close(): both sides are sequentially consistent.
  Stripe& enter() {
    Stripe& stripe = stripes_[std::hash<std::thread::id>{}(std::this_thread::get_id()) % stripes_.size()];
    stripe.inside.fetch_add(1);
    return stripe;
  }

  Line& open_line(uint32_t id) {
    Line* line = lines_.find(id);
    check(line && line->sender && line->receiver, "a wire is used before both its ends are open");
    return *line;
  }

  Line& line_of(const Wire& wire, bool Line::*end) {
    std::string what = text_of(wire);
    if (closed_.load()) throw Error(Code::failed, what + " is opened on a closed transport");
    if (wire.slots == 0) throw Error(Code::value, what + " has no slots, so nothing could ever be sent");
    if (Line* line = lines_.find(wire.id)) {
      if (line->*end) throw Error(Code::value, what + " is opened twice: its id is taken");
      auto& other = line->wire;
      if (other.from_rank != wire.from_rank || other.to_rank != wire.to_rank || other.slots != wire.slots ||
          other.bytes_max != wire.bytes_max)
        throw Error(Code::value, what + " differs at its two ends");
      return *line;
    }
    return lines_.add(std::make_unique<Line>(wire));
  }

  std::mutex opening_;
  WireTable<Line> lines_;
  std::array<Stripe, 16> stripes_;
  std::atomic<bool> closed_{false};
};

}  // namespace

std::unique_ptr<Transport> make_inproc() { return std::make_unique<Inproc>(); }

}  // namespace sluice
