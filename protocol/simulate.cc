// SPDX-License-Identifier: Apache-2.0
#include "protocol/simulate.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <random>

#include "protocol/register.h"
#include "protocol/waits.h"

namespace sluice {
namespace {

struct Reader {
  size_t actor = 0;
  uint32_t port = 0;
  int64_t last_arrival = 0;  // messages of one link arrive in order
  int64_t expected = 0;      // number of the token that must come next
};

struct Reg {
  RegisterState state{1, 0, 0};
  std::vector<Reader> readers;
  int64_t published = 0;
};

struct Link {
  size_t reg = 0, reader = 0;
  std::deque<int64_t> held;  // numbers of the tokens in the port
  int64_t last_arrival = 0;  // of credits on their way back
  bool gate = false;
};

struct Actor {
  const PlanActor* plan = nullptr;
  const ActorDef* kind = nullptr;
  ActorState state;
  std::vector<InPort> in;
  std::vector<OutPort> out;
  std::vector<Link> links;
  std::vector<size_t> regs;  // per out-port
  bool firing = false;
  int64_t fired = 0;
};

struct Event {
  int64_t time = 0, number = 0;  // the number breaks ties, so that a seed tells everything
  enum Kind { end, input, credit } kind = end;
  size_t actor = 0;
  uint32_t port = 0;
  int64_t token = 0;
  bool operator>(const Event& other) const { return std::pair(time, number) > std::pair(other.time, other.number); }
};

class Simulation {
 public:
  Simulation(const Plan& plan, std::span<const ActorDef* const> kinds, const SimulateOptions& options)
      : plan_(plan),
        options_(options),
        random_(options.seed),
        regs_(plan.registers.size()),
        actors_(plan.actors.size()) {
    for (size_t a = 0; a < actors_.size(); ++a) set_up(a, kinds);
    for (size_t a = 0; a < actors_.size(); ++a) set_credits(actors_[a]);
  }

  Simulated run() {
    for (size_t a = 0; a < actors_.size(); ++a) try_fire(a);
    while (!events_.empty()) {
      Event event = events_.top();
      events_.pop();
      now_ = event.time;
      handle(event);
    }
    return result();
  }

 private:
  void set_up(size_t a, std::span<const ActorDef* const> kinds) {
    Actor& actor = actors_[a];
    actor.plan = &plan_.actors[a];
    actor.kind = &kind_of(kinds, actor.plan->kind);
    auto firings = uint32_t(actor.plan->firings);
    bool waits = std::any_of(actor.plan->in.begin(), actor.plan->in.end(),
                             [&](const Port& port) { return plan_.registers[size_t(port.reg)].producer >= 0; });
    if (actor.kind->gated || !waits) {
      actor.in.push_back({firings, firings, uint32_t(options_.steps), unbounded_slots});
      actor.links.push_back({.gate = true});
    }
    for (auto& port : actor.plan->in) {
      auto& reg = plan_.registers[size_t(port.reg)];
      if (reg.producer < 0) continue;
      auto& readers = regs_[size_t(port.reg)].readers;
      Link link{size_t(port.reg), readers.size(), {}, 0, false};
      for (int t = 0; t < reg.initial; ++t) link.held.push_back(t);
      readers.push_back({a, uint32_t(actor.in.size()), 0, reg.initial});
      actor.in.push_back({uint32_t(port.period), uint32_t(port.period), uint32_t(reg.initial), uint32_t(reg.slots)});
      actor.links.push_back(link);
    }
    for (auto& port : actor.plan->out) actor.regs.push_back(size_t(port.reg));
  }

  void set_credits(Actor& actor) {
    for (auto& port : actor.plan->out) {
      auto& plan = plan_.registers[size_t(port.reg)];
      Reg& reg = regs_[size_t(port.reg)];
      reg.state = RegisterState(uint32_t(plan.slots), uint32_t(reg.readers.size()), uint32_t(plan.initial));
      reg.published = plan.initial;
      actor.out.push_back({uint32_t(port.period), 0, reg.state.credits(), uint32_t(plan.slots)});
    }
    actor.state.in = actor.in;
    actor.state.out = actor.out;
    settle(actor.state);
  }

  int64_t delay() { return int64_t(random_() % uint64_t(options_.delay_max + 1)); }
  void add(Event event) {
    event.number = next_number_++;
    events_.push(event);
  }

  void try_fire(size_t a) {
    Actor& actor = actors_[a];
    if (actor.firing || !actor.state.ready() || actor.fired >= options_.steps * actor.plan->firings) return;
    actor.firing = true;
    begin_firing(actor.state, [&](uint32_t out) { regs_[actor.regs[out]].state.acquire(); });
    add({now_ + delay(), 0, Event::end, a, 0, 0});
  }

  void handle(const Event& event) {
    Actor& actor = actors_[event.actor];
    if (event.kind == Event::input) {
      Link& link = actor.links[event.port];
      check(regs_[link.reg].readers[link.reader].expected++ == event.token, "a token is lost, doubled or out of order");
      link.held.push_back(event.token);
      actor.kind->on_input(actor.state, event.port, 1);
    } else if (event.kind == Event::credit) {
      auto& reg = regs_[actor.regs[event.port]];
      if (reg.state.give_back(uint32_t(event.token % reg.state.slots())))
        actor.kind->on_credit(actor.state, event.port);
    } else {
      end(event.actor);
    }
    try_fire(event.actor);
  }

  void end(size_t a) {
    Actor& actor = actors_[a];
    end_firing(
        actor.state, [&](uint32_t in) { give_back(actor.links[in]); }, [&](uint32_t out) { publish(actor, out); });
    actor.firing = false;
    ++actor.fired;
  }

  void give_back(Link& link) {
    if (link.gate) return;
    int64_t token = link.held.front();
    link.held.pop_front();
    link.last_arrival = std::max(link.last_arrival, now_ + delay());
    auto producer = size_t(plan_.registers[link.reg].producer);
    auto& regs = actors_[producer].regs;
    auto out = uint32_t(std::find(regs.begin(), regs.end(), link.reg) - regs.begin());
    add({link.last_arrival, 0, Event::credit, producer, out, token});
  }

  void publish(Actor& actor, uint32_t out) {
    Reg& reg = regs_[actor.regs[out]];
    bool free_now = false;
    uint32_t slot = reg.state.publish(free_now);
    check(reg.published % reg.state.slots() == slot, "a token lies in another slot than its number tells");
    int64_t token = reg.published++;
    if (free_now) actor.kind->on_credit(actor.state, out);
    for (auto& reader : reg.readers) {
      reader.last_arrival = std::max(reader.last_arrival, now_ + delay());
      add({reader.last_arrival, 0, Event::input, reader.actor, reader.port, token});
    }
  }

  Simulated result() const {
    Simulated result;
    result.done = result.empty = true;
    for (auto& actor : actors_) {
      result.firings += actor.fired;
      result.done = result.done && actor.fired == options_.steps * actor.plan->firings;
    }
    for (size_t r = 0; r < regs_.size(); ++r) {
      auto& plan = plan_.registers[r];
      if (plan.producer < 0) continue;
      result.full_max[plan.name] = regs_[r].state.full_max();
      uint32_t rest = regs_[r].readers.empty() ? 0 : uint32_t(plan.initial);
      result.empty = result.empty && regs_[r].state.full() == rest;
    }
    if (!result.done) result.stall = stall();
    return result;
  }

  std::string stall() const {
    std::vector<std::string> names;
    std::vector<Wait> waits;
    for (auto& actor : actors_) names.push_back("actor '" + actor.plan->name + "'");
    for (size_t a = 0; a < actors_.size(); ++a) {
      auto& actor = actors_[a];
      for (size_t i = 0; i < actor.in.size(); ++i) {
        if (actor.links[i].gate || actor.in[i].tokens > 0) continue;
        auto& reg = plan_.registers[actor.links[i].reg];
        waits.push_back(
            {int(a), reg.producer, "a full slot of '" + reg.name + "' from " + names[size_t(reg.producer)]});
      }
      for (size_t o = 0; o < actor.out.size(); ++o) {
        if (actor.out[o].phase > 0 || actor.out[o].credits > 0) continue;
        for (auto& reader : regs_[actor.regs[o]].readers)
          if (actors_[reader.actor].in[reader.port].tokens > 0)
            waits.push_back(
                {int(a), int(reader.actor),
                 "a credit of '" + plan_.registers[actor.regs[o]].name + "', held by " + names[reader.actor]});
      }
    }
    return wait_cycle(names, waits);
  }

  const Plan& plan_;
  const SimulateOptions options_;
  std::mt19937_64 random_;
  std::vector<Reg> regs_;
  std::vector<Actor> actors_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t now_ = 0, next_number_ = 0;
};

}  // namespace

Simulated simulate(const Plan& plan, std::span<const ActorDef* const> kinds, const SimulateOptions& options) {
  return Simulation(plan, kinds, options).run();
}

}  // namespace sluice
