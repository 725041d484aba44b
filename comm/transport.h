// SPDX-License-Identifier: Apache-2.0
// Transport: carries filled slots of a producer's register to a consumer on another rank, and credits back.
// A wire is one directed edge of the plan with `slots` credits. `send` may be called only with a credit; the arrival
// is announced in order; `release` gives the credit back. There is no other flow control.
// `inproc` hands over the producer's own memory (direct arrivals); a network transport packs the pieces.
// Thread rule: send and release from any thread; callbacks may come on any thread and must only post.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/shape.h"
#include "kernels/device/device.h"

namespace sluice {

struct Wire {
  uint32_t id = 0;  // unique in the job; arithmetic on the plan's ids and coordinates
  int from_rank = 0, to_rank = 0;
  uint32_t slots = 1;
  size_t bytes_max = 0;  // of one slot
};

struct Arrival {
  SlotHeader header;
  uint32_t slot = 0;                // give it back with release
  const std::byte* data = nullptr;  // readable by the consumer until released
  EventPtr event;                   // null: data is there; else it is when the event is done
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  // Both ends are opened by their own rank's process before the first send. Throws Error on a duplicate id.
  virtual void open_sender(const Wire&, std::function<void(uint32_t slot)> on_release) = 0;
  virtual void open_receiver(const Wire&, std::function<void(const Arrival&)> on_arrival) = 0;
  // The memory must stay as it is until on_release(slot).
  virtual void send(uint32_t wire, uint32_t slot, const SlotHeader&, const std::byte* data, size_t bytes,
                    const EventPtr& event) = 0;
  virtual void release(uint32_t wire, uint32_t slot) = 0;
  // After it no callback runs any more.
  virtual void close() = 0;
  virtual int64_t bytes_sent() const = 0;  // over links between ranks, for figures
};

std::unique_ptr<Transport> make_inproc();

}  // namespace sluice
