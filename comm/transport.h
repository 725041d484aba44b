// SPDX-License-Identifier: Apache-2.0
// Transport: carries filled slots of a producer's register to a consumer on another rank, and credits back.
// A wire is one directed edge of the plan with `slots` credits. `send` may be called only with a credit; the arrival
// is announced in order; `release` gives the credit back. There is no other flow control.
//
//   in place (inproc, shm): an arrival is the sender's own memory, so the whole slot is sent and nothing is copied
//   else (ucx, nccl): what is sent lands in receive slots of the transport, so the sender packs only what is wanted
//
// Thread rule: send and release from any thread, one at a time for a wire; callbacks may come on any thread and must
// only post.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "kernels/device/device.h"

namespace sluice {

struct Wire {
  uint32_t id = 0;  // unique in the run; arithmetic on the plan's ids and coordinates
  int from_rank = 0, to_rank = 0;
  uint32_t slots = 1;
  size_t bytes_max = 0;  // of what is sent for one slot
};

struct Arrival {
  SlotHeader header;
  uint32_t slot = 0;                // give it back with release
  const std::byte* data = nullptr;  // readable by the consumer until released
  EventPtr event;                   // null: data is there; else it is when the event is done
  bool refresh = false;             // no new token: what this slot holds was replaced while nobody reads it
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  // Whether an arrival is the sender's own memory; that memory must then come from memory().
  virtual bool in_place() const = 0;
  // Where memory that is sent from comes from; null: anywhere.
  virtual HostMemory* memory() { return nullptr; }
  // Both ends are opened by their own rank's process before the first send. Throws Error on a duplicate id.
  virtual void open_sender(const Wire&, std::function<void(uint32_t slot)> on_release) = 0;
  virtual void open_receiver(const Wire&, std::function<void(const Arrival&)> on_arrival) = 0;
  // The memory must stay as it is until on_release(slot).
  virtual void send(uint32_t wire, uint32_t slot, const SlotHeader&, const std::byte* data, size_t bytes,
                    const EventPtr& event) = 0;
  virtual void release(uint32_t wire, uint32_t slot) = 0;
  // Replaces what a slot holds at the receiver, sent before or not, while no actor fires: the callback gets an arrival
  // with `refresh` set, and no credit is taken. Blocks until the receiver has it; throws Error when it is lost.
  virtual void refresh(uint32_t wire, uint32_t slot, const SlotHeader&, const std::byte* data, size_t bytes) = 0;
  // Takes what has arrived, on the caller's thread: workers that spin call it between looks at their inboxes. Any
  // thread, also at once; false: there was nothing. A transport with a thread of its own needs no such calls.
  virtual bool poll() { return false; }
  // Between spin(true) and spin(false) of a thread it calls poll() all the time: while any does, peers need not wake
  // the transport's own thread. spin(false) takes what came meanwhile.
  virtual void spin(bool) {}
  // After it no callback runs any more.
  virtual void close() = 0;
  virtual int64_t bytes_sent() const = 0;  // over links between ranks, for figures
};

std::unique_ptr<Transport> make_inproc();

// ---- transports between processes ----------------------------------------------------------------------------------

// What the processes of a run know of each other before any data flows; it comes over the authenticated control plane.
struct ProcessGroup {
  int process = 0, processes = 1;
  std::vector<int> process_of_rank;
  uint64_t run = 0;               // stands in every header: what belongs to another run is dropped
  std::array<uint8_t, 32> key{};  // each data connection proves it before anything it sends counts
  // A peer is gone or has said nothing for too long. Called once a peer, on any thread; must only post. A peer that has
  // closed its side in good order is no loss.
  std::function<void(int process, const std::string& why)> on_lost;
  // Silence after which a peer counts as lost; pings go several times as often.
  int silence_ms_max = 6000;
  // A transport's own thread looks so long for arrivals before it sleeps; only where cores are free.
  int spin_us = 0;
};

class ProcessTransport : public Transport {
 public:
  // Where this process is reached: opaque bytes, at most 4 KiB, for connect() of the others.
  virtual std::string address() const = 0;
  // By process; "" for this one and for those reached otherwise. Returns when all are reached; throws Error that names
  // who is missing. Before the first open_*; called once.
  virtual void connect(const std::vector<std::string>& addresses) = 0;
};

// Between processes of one host: memory() lies in an arena that the others map.
std::unique_ptr<ProcessTransport> make_shm(const ProcessGroup& group);
// Between hosts: UCX over its network transports, bound to `interface` ("": loopback).
std::unique_ptr<ProcessTransport> make_ucx(const ProcessGroup& group, const std::string& interface);

// How this process reaches the others: null for itself. Empty: all ranks are here.
struct Neighbours {
  int process = 0;
  std::vector<int> process_of_rank;
  std::vector<std::shared_ptr<Transport>> to;  // by process

  bool here(int rank) const { return process_of_rank.empty() || process_of_rank[size_t(rank)] == process; }
};

}  // namespace sluice
