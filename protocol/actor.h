// SPDX-License-Identifier: Apache-2.0
// The protocol of actors and registers, as pure state: no threads, no clock, no memory but what is set up at the start.
//
//   in-port                      actor                        out-port
//   tokens: full slots           fires when no port is        credits: free slots
//   left:   firings on the       missing anything             phase:   firings into the
//           front token                                                current slot
//
// An actor fires when every in-port holds a token and every out-port that is at the start of a slot has a free one.
// An in-port of period n keeps its front token for n firings; an out-port of period n publishes at its n-th.
// Invariants: tokens <= slots, credits <= slots (both checked: a token or a credit too much is a broken protocol);
// missing == in-ports without a token + out-ports at phase 0 without a credit, whenever the actor is not firing.
// Thread rule: one thread at a time owns an actor's state.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"

namespace sluice {

inline constexpr uint32_t unbounded_slots = ~0u;  // of a gate: the tokens are granted steps

struct InPort {
  uint32_t period = 1;  // firings that one token serves
  uint32_t left = 1;    // firings that the front token still serves
  uint32_t tokens = 0;  // full slots announced and not given back
  uint32_t slots = 1;
};

struct OutPort {
  uint32_t period = 1;   // firings that fill one slot
  uint32_t phase = 0;    // firings into the slot held; 0: none is held
  uint32_t credits = 1;  // free slots
  uint32_t slots = 1;
};

struct ActorState {
  std::span<InPort> in;
  std::span<OutPort> out;
  uint32_t missing = 0;
  bool stopped = false;
  bool ready() const { return missing == 0 && !stopped; }
};

// A kind of actor. Its functions change the state only; they return whether the actor became ready by it.
struct ActorDef {
  std::string_view name, doc;
  bool gated = false;  // in-port 0 is a gate: its tokens are the steps that the client granted
  bool (*on_input)(ActorState&, uint32_t port, uint32_t tokens) = nullptr;
  bool (*on_credit)(ActorState&, uint32_t port) = nullptr;
  void (*on_stop)(ActorState&) = nullptr;
};
std::span<const ActorDef* const> builtin_kinds();  // written by CMake from protocol/kinds/*.cc

// The kind of that name; throws Error(not_found).
const ActorDef& kind_of(std::span<const ActorDef* const> kinds, std::string_view name);

// ---- what all kinds are made of
// --------------------------------------------------------------------------------------

// Counts what is missing; to be called once the ports are set up.
inline void settle(ActorState& actor) {
  actor.missing = 0;
  for (auto& port : actor.in) actor.missing += port.tokens == 0;
  for (auto& port : actor.out) actor.missing += port.phase == 0 && port.credits == 0;
}

inline bool take_input(ActorState& actor, uint32_t port, uint32_t tokens) {
  InPort& in = actor.in[port];
  check(tokens > 0 && tokens <= in.slots - in.tokens, "an in-port got more tokens than its register has slots");
  bool was_empty = in.tokens == 0;
  in.tokens += tokens;
  return was_empty && --actor.missing == 0 && !actor.stopped;
}

inline bool take_credit(ActorState& actor, uint32_t port) {
  OutPort& out = actor.out[port];
  check(out.credits < out.slots, "an out-port got more credits than its register has slots");
  return out.credits++ == 0 && out.phase == 0 && --actor.missing == 0 && !actor.stopped;
}

inline void halt(ActorState& actor) { actor.stopped = true; }

// Starts a firing: `acquire(port)` is called for each out-port that takes a fresh slot now.
template <class Acquire>
void begin_firing(ActorState& actor, Acquire&& acquire) {
  check(actor.ready(), "an actor fires that is not ready");
  for (uint32_t o = 0; o < actor.out.size(); ++o) {
    OutPort& out = actor.out[o];
    if (out.phase++ > 0) continue;
    --out.credits;
    acquire(o);
  }
}

// Ends it: `give_back(port)` for each in-port whose front token is used up, then `publish(port)` for each out-port
// whose slot is full. Both may call back into take_credit of this very actor.
template <class GiveBack, class Publish>
void end_firing(ActorState& actor, GiveBack&& give_back, Publish&& publish) {
  for (uint32_t i = 0; i < actor.in.size(); ++i) {
    InPort& in = actor.in[i];
    if (--in.left > 0) continue;
    in.left = in.period;
    if (--in.tokens == 0) ++actor.missing;
    give_back(i);
  }
  for (uint32_t o = 0; o < actor.out.size(); ++o) {
    OutPort& out = actor.out[o];
    if (out.phase < out.period) continue;
    out.phase = 0;
    if (out.credits == 0) ++actor.missing;
    publish(o);
  }
}

}  // namespace sluice
