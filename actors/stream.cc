// SPDX-License-Identifier: Apache-2.0
#include "actors/stream.h"

#include <fmt/format.h>

#include "actors/outlet.h"
#include "actors/poller.h"

namespace sluice {

void Stream::post(const Message& message) {
  {
    std::lock_guard lock(mutex_);
    inbox_.push_back(message);
    any_.store(true, std::memory_order_release);
  }
  // Sequentially consistent on both sides: either rest() sees the message or we see that nobody is on it.
  if (!scheduled_.exchange(true)) world_.host->wake(*this);
}

void Stream::tell_if_caught_up() {
  if (world_.waiting.load() == World::idle && caught_up()) world_.tell_client();
}

bool Stream::rest() {
  scheduled_.exchange(false);  // ordered with the exchange in post(): one of the two sees the other
  tell_if_caught_up();
  return any_.load() && !scheduled_.exchange(true);
}

bool Stream::caught_up() const {
  int64_t steps = world_.opened.load();
  for (auto* actor : actors)
    if (actor->fired.load(std::memory_order_relaxed) < steps * int64_t(actor->firings)) return false;
  return true;
}

bool Stream::turn(int firings_max) {
  drain_inbox();
  for (int fired = 0; fired < firings_max; ++fired) {
    uint32_t place = ready_.first();
    if (place == Ready::none || world_.stopped.load(std::memory_order_relaxed)) return false;
    fire(*actors[place]);
    if (any_.load(std::memory_order_relaxed)) drain_inbox();
  }
  return ready_.first() != Ready::none;
}

void Stream::seal() {
  ready_ = Ready(uint32_t(actors.size()));
  for (uint32_t a = 0; a < actors.size(); ++a) {
    actors[a]->place = a;
    settle(actors[a]->state);
    if (actors[a]->state.ready()) ready_.set(a);
  }
  inbox_.reserve(64);
  taken_.reserve(64);
}

void Stream::drain_inbox() {
  if (!any_.load(std::memory_order_relaxed)) return;
  {
    std::lock_guard lock(mutex_);
    std::swap(inbox_, taken_);
    any_.store(false, std::memory_order_relaxed);
  }
  messages.store(messages.load(std::memory_order_relaxed) + int64_t(taken_.size()), std::memory_order_relaxed);
  for (auto& message : taken_) handle(message);
  taken_.clear();
}

void Stream::handle(const Message& message) {
  switch (message.kind) {
    case Message::input:
      if (message.actor->kind->on_input(message.actor->state, message.port, message.value)) mark_ready(*message.actor);
      break;
    case Message::credit: credit(*message.actor, message.port, message.value); break;
    case Message::resume: {
      Actor& actor = *message.actor;
      if (world_.stopped.load(std::memory_order_relaxed)) break;
      if (actor.phase == Actor::Phase::before) {
        if (ready_to_run(actor)) run(actor);
      } else if (complete(actor)) {
        finish(actor);
      }
      break;
    }
    case Message::stop: stop(); break;
    case Message::report: write_report(); break;
  }
}

// ---- a firing: before -> run -> after -> finish; each step may wait for an event through the poller
// -------------------

void Stream::fire(Actor& actor) {
  ready_.clear(actor.place);
  firing.store(&actor, std::memory_order_relaxed);
  begin_firing(actor.state, [&](uint32_t out) { acquire(actor, out); });
  Firing& now = actor.now;
  now.step = world_.step_base.load(std::memory_order_relaxed) + now.index;
  if (actor.carrier >= 0)
    now.extent = actor.in_header(size_t(actor.carrier)).extent;
  else if (now.micro == 0)
    begin_step(now);
  if (ready_to_run(actor)) run(actor);
}

void Stream::begin_step(Firing& now) {
  auto facts = world_.steps.begin(now.step, now.index);
  now.extent = facts.extent;
  now.batch = std::move(facts.batch);
}

bool Stream::ready_to_run(Actor& actor) {
  if (!world_.async || !actor.body) return true;
  while (EventPtr event = actor.body->before(actor.now)) {
    if (!event->done()) {
      wait_on_host(actor, std::move(event), Actor::Phase::before);
      return false;
    }
  }
  return true;
}

void Stream::run(Actor& actor) {
  actor.phase = Actor::Phase::idle;
  if (actor.body) {
    try {
      if (world_.async) wait_for_inputs(actor);
      actor.body->run(actor.now);
      if (world_.async) recorded_ = device->record();
    } catch (...) {
      return fail(actor);
    }
    if (!complete(actor)) return;
  }
  finish(actor);
}

// True: what the host has to see is done and complete() has run, so that the firing may end.
bool Stream::complete(Actor& actor) {
  try {
    if (world_.async) {
      if (EventPtr event = actor.body->after(actor.now); event && !event->done()) {
        wait_on_host(actor, std::move(event), Actor::Phase::after);
        return false;
      }
      if (actor.phase == Actor::Phase::after) recorded_ = device->record();
      actor.phase = Actor::Phase::idle;
    }
    actor.body->complete(actor.now);
    return true;
  } catch (...) {
    fail(actor);
    return false;
  }
}

void Stream::wait_on_host(Actor& actor, EventPtr event, Actor::Phase phase) {
  actor.phase = phase;
  world_.poller->watch(std::move(event), [this, &actor] { post({Message::resume, 0, 0, &actor}); });
}

void Stream::finish(Actor& actor) {
  end_firing(
      actor.state, [&](uint32_t in) { give_back(actor, in); }, [&](uint32_t out) { publish(actor, out); });
  if (++actor.now.micro == actor.firings) {
    actor.now.micro = 0;
    ++actor.now.index;
    if (actor.gated) actor.now.batch = nullptr;
  }
  recorded_ = nullptr;
  if (!outgoing_.empty()) flush();
  actor.fired.store(actor.fired.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  // Its own credits may have come back on the way, so only now it is known whether it can fire again.
  if (actor.state.ready())
    ready_.set(actor.place);
  else
    ready_.clear(actor.place);
}

// ---- tokens and credits
// -----------------------------------------------------------------------------------------------

void Stream::acquire(Actor& actor, uint32_t out) {
  Register& reg = *actor.out[out];
  uint32_t slot = reg.state.acquire();
  if (!world_.async) return;
  // Readers on other streams may still be at it on the device: what we launch next has to wait for them.
  for (uint32_t tap = 0; tap < reg.state.readers(); ++tap) {
    EventPtr& event = reg.drained[slot * reg.state.readers() + tap];
    if (event) device->wait(std::exchange(event, nullptr));
  }
}

void Stream::wait_for_inputs(Actor& actor) {
  for (auto& link : actor.in) {
    if (!link.plan) continue;
    const EventPtr& event = link.wired ? link.arrivals[link.front].event : link.reg->filled[link.front];
    bool same_stream = !link.wired && link.reg->producer && link.reg->producer->stream == this;
    if (event && !same_stream) device->wait(event);
  }
}

void Stream::give_back(Actor& actor, uint32_t in) {
  InLink& link = actor.in[in];
  if (!link.plan) return;  // a gate
  uint32_t slot = link.front;
  link.front = slot + 1 == actor.in_ports[in].slots ? 0 : slot + 1;
  if (link.wired) {
    Arrival& arrival = link.arrivals[slot];
    if (!world_.async) return link.transport->release(link.wire, arrival.slot);
    // The transport knows no events on the way back: the slot stays ours until the device is done with it. Always
    // through the poller, so that slots go back in order.
    world_.poller->watch(recorded_, [transport = link.transport, wire = link.wire, from = arrival.slot] {
      transport->release(wire, from);
    });
    return;
  }
  Register& reg = *link.reg;
  Actor& producer = *reg.producer;
  if (producer.stream == this) return credit(producer, reg.out, slot);
  if (world_.async) reg.drained[slot * reg.state.readers() + link.reader] = recorded_;
  send(*producer.stream, {Message::credit, reg.out, slot, &producer});
}

// What a firing sends to other streams leaves at its end, with one wake-up a stream.
void Stream::send(Stream& to, const Message& message) { outgoing_.emplace_back(&to, message); }

void Stream::flush() {
  for (size_t first = 0; first < outgoing_.size(); ++first) {
    Stream* to = outgoing_[first].first;
    if (!to) continue;
    {
      std::lock_guard lock(to->mutex_);
      for (size_t i = first; i < outgoing_.size(); ++i)
        if (outgoing_[i].first == to) {
          to->inbox_.push_back(outgoing_[i].second);
          outgoing_[i].first = nullptr;
        }
      to->any_.store(true, std::memory_order_release);
    }
    if (!to->scheduled_.exchange(true)) world_.host->wake(*to);
  }
  outgoing_.clear();
}

void Stream::credit(Actor& producer, uint32_t out, uint32_t slot) {
  if (!producer.out[out]->state.give_back(slot)) return;
  if (producer.kind->on_credit(producer.state, out)) mark_ready(producer);
}

void Stream::publish(Actor& actor, uint32_t out) {
  Register& reg = *actor.out[out];
  bool free_now = false;
  uint32_t slot = reg.state.publish(free_now);
  uint32_t period = actor.out_ports[out].period;
  SlotHeader& header = reg.headers[slot];
  header.step = actor.now.step;
  header.micro_batch = int32_t(period == 1 ? actor.now.micro : actor.now.micro / period);
  header.micro_batches = int32_t(period == 1 ? actor.firings : actor.firings / period);
  ++header.sequence;
  header.bytes_valid = reg.bytes;
  header.extent = actor.now.extent;
  if (world_.async) reg.filled[slot] = recorded_;
  reg.full_max.store(reg.state.full_max(), std::memory_order_relaxed);
  if (free_now) {
    if (actor.kind->on_credit(actor.state, out)) mark_ready(actor);
    return;
  }
  for (auto& tap : reg.taps) deliver(tap, reg, slot);
}

void Stream::deliver(const Tap& tap, Register& reg, uint32_t slot) {
  if (tap.outlet) return tap.outlet->send(*device, reg, slot, world_.poller);
  if (tap.remote)
    return tap.transport->send(tap.wire, slot, reg.headers[slot], reg.slot(slot), size_t(reg.bytes),
                               world_.async ? reg.filled[slot] : nullptr);
  Actor& actor = *tap.actor;
  if (actor.stream != this) return send(*actor.stream, {Message::input, tap.port, 1, &actor});
  if (actor.kind->on_input(actor.state, tap.port, 1)) mark_ready(actor);
}

// ---- failure, stop, report
// --------------------------------------------------------------------------------------------

// Turns the exception in flight into one message. The actor never ends its firing, so nothing downstream sees garbage.
void Stream::fail(Actor& actor) {
  Body::At at = actor.body->at();
  if (at.what.empty()) at.what = actor.plan->name;
  world_.fail(failure_of(std::current_exception(), actor, at.what, at.place, actor.now.step));
}

void Stream::stop() {
  for (auto* actor : actors) actor->kind->on_stop(actor->state);
  ready_.clear_all();
}

Stream::Report Stream::take_report() {
  std::lock_guard lock(mutex_);
  return std::exchange(report_, {});
}

void Stream::write_report() {
  Report report;
  report.done = true;
  for (auto* actor : actors) report.actors.push_back({actor, actor->in_ports, actor->out_ports});
  {
    std::lock_guard lock(mutex_);
    report_ = std::move(report);
  }
  std::lock_guard lock(world_.mutex);
  world_.changed.notify_all();
}

}  // namespace sluice
