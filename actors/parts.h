// SPDX-License-Identifier: Apache-2.0
// What a lowered plan is made of: registers, actors and their links, for one rank each.
//
//   producer actor --OutLink--> Register [slot 0 | slot 1 | ...] --Tap--> InLink of a consumer (same rank)
//                                                              \--Tap--> wire of a transport --> InLink (other rank)
//                                       a wire that leaves the process may have an Outlet that packs --^
//
// Thread rule: a Register's state and an Actor belong to the stream that hosts the actor (the producer, for a
// register). Headers and events of a slot are written before its message is posted and read after it arrived; the
// inbox orders the two.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "actors/floor.h"
#include "comm/transport.h"
#include "protocol/actor.h"
#include "protocol/register.h"

namespace sluice {

class Stream;
class Body;
class Outlet;
struct Actor;
using Batch = std::map<std::string, HostArray>;

// Where a published slot goes: an in-port of this rank, or a wire to another.
struct Tap {
  Actor* actor = nullptr;
  uint32_t port = 0;
  bool remote = false;
  uint32_t wire = 0;
  Transport* transport = nullptr;  // of the wire
  Outlet* outlet = nullptr;        // packs what leaves the process; null: the slot itself is sent
};

struct Register {
  const PlanRegister* plan = nullptr;
  int id = 0, rank = 0;
  int64_t bytes = 0;            // of a slot
  std::byte* memory = nullptr;  // of slot 0, a device address
  RegisterState state{1, 0, 0};
  std::vector<SlotHeader> headers;  // per slot
  std::vector<Tap> taps;
  Actor* producer = nullptr;      // null: a constant
  uint32_t out = 0;               // the producer's out-port
  std::vector<EventPtr> filled;   // per slot: when its content is there (asynchronous devices)
  std::vector<EventPtr> drained;  // per slot and reader: when the reader is done with it (asynchronous devices)
  std::atomic<uint32_t> full_max{0};

  std::byte* slot(uint32_t i) const { return memory + int64_t(i) * bytes; }
};

// The consumer's end of an in-port.
struct InLink {
  Register* reg = nullptr;             // of this rank; null: a gate or a wire
  const PlanRegister* plan = nullptr;  // null: a gate
  int id = -1;                         // the plan's register
  int peer = -1;                       // the producer's rank
  uint32_t reader = 0;                 // my index among the taps of the register
  uint32_t front = 0;                  // ring index of the front token
  bool wired = false;
  uint32_t wire = 0;
  Transport* transport = nullptr;  // of the wire
  bool packed = false;             // an arrival is the pieces that the actor's moves want, not the peer's whole slot
  std::vector<Arrival> arrivals;   // of a wire: a ring, written by the transport's callback
  uint32_t tail = 0;               // the callback's
};

// A constant of a rank in another process: held from the announcement on, never given back.
struct ConstantLink {
  int id = -1;  // the plan's register
  int peer = -1;
  bool packed = false;
  std::atomic<const std::byte*> data{nullptr};  // set by the transport's callback
};

// One firing, from its begin to its end.
struct Firing {
  int64_t step = 0;    // the client's numbering
  int64_t index = 0;   // steps since the floor was made
  uint32_t micro = 0;  // which firing within the step
  Extents extent{};
  std::shared_ptr<const Batch> batch;  // of gated actors: what was fed for the step
};

struct Actor {
  const PlanActor* plan = nullptr;
  const ActorDef* kind = nullptr;
  int id = 0, rank = 0;
  Stream* stream = nullptr;
  uint32_t place = 0;  // among the stream's actors by key
  ActorState state;
  std::vector<InPort> in_ports;
  std::vector<OutPort> out_ports;
  std::vector<InLink> in;
  std::vector<std::unique_ptr<ConstantLink>> constants;
  std::vector<Register*> out;
  int carrier = -1;  // the in-port whose header brings the extents; -1: the gate, so the step itself tells
  bool gated = false;
  uint32_t firings = 1;
  Firing now;
  enum class Phase : uint8_t { idle, before, after } phase = Phase::idle;  // waiting for a host-side event
  std::unique_ptr<Body> body;                                              // null: nothing to do but to pass tokens on
  std::atomic<int64_t> fired{0};

  const std::byte* in_data(size_t i) const {
    const InLink& link = in[i];
    return link.wired ? link.arrivals[link.front].data : link.reg->slot(link.front);
  }
  const SlotHeader& in_header(size_t i) const {
    const InLink& link = in[i];
    return link.wired ? link.arrivals[link.front].header : link.reg->headers[link.front];
  }
  std::byte* out_data(size_t o) const { return out[o]->slot(out[o]->state.next()); }         // being filled
  const std::byte* last_data(size_t o) const { return out[o]->slot(out[o]->state.last()); }  // published last
};

struct Message {
  enum Kind : uint32_t { input, credit, resume, stop, report } kind = input;
  uint32_t port = 0;
  uint32_t value = 0;  // input: how many tokens; credit: the slot
  Actor* actor = nullptr;
};

// What becomes of an exception in an actor.
struct Failure {
  std::string actor;
  int rank = 0;
  int64_t step = 0;
  Error error{Code::failed, ""};
};

}  // namespace sluice
