// SPDX-License-Identifier: Apache-2.0
// Plays the plan on tokens alone. A plan is a marked graph: a firing never takes away what another needs, so the order
// of play does not matter, and what stalls here stalls under any order.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "base/text.h"
#include "plan/verify.h"

namespace sluice {
namespace {

constexpr int64_t steps = 2;

// Why an actor cannot fire: it waits for `actor` at `reg`.
struct Wait {
  int actor = -1, reg = -1;
  bool for_full = true;  // else for a free slot
};

class Play {
 public:
  explicit Play(const Plan& plan)
      : plan_(plan), fired_(plan.actors.size()), out_period_(plan.registers.size()), readers_(plan.registers.size()) {
    for (size_t a = 0; a < plan.actors.size(); ++a) {
      for (auto& port : plan.actors[a].in) readers_[size_t(port.reg)].push_back({int(a), port.period});
      for (auto& port : plan.actors[a].out) out_period_[size_t(port.reg)] = port.period;
    }
  }

  // Fires until nothing can; returns an actor that has firings left, or -1.
  int run() {
    std::deque<int> ready;
    std::vector<bool> queued(plan_.actors.size(), true);
    for (size_t a = 0; a < plan_.actors.size(); ++a) ready.push_back(int(a));
    auto wake = [&](int a) {
      if (a >= 0 && !queued[size_t(a)]) ready.push_back(a);
      if (a >= 0) queued[size_t(a)] = true;
    };
    while (!ready.empty()) {
      int a = ready.front();
      ready.pop_front();
      queued[size_t(a)] = false;
      int64_t before = fired_[size_t(a)];
      while (!done(a) && wait_of(a).reg < 0) ++fired_[size_t(a)];
      if (fired_[size_t(a)] == before) continue;
      for (auto& port : plan_.actors[size_t(a)].in) wake(plan_.registers[size_t(port.reg)].producer);
      for (auto& port : plan_.actors[size_t(a)].out)
        for (auto& reader : readers_[size_t(port.reg)]) wake(reader.actor);
    }
    for (size_t a = 0; a < plan_.actors.size(); ++a)
      if (!done(int(a))) return int(a);
    return -1;
  }

  // The cycle of waits that a stalled actor leads to. Rates are balanced, so whoever it waits for has firings left too.
  std::string cycle(int start) const {
    std::vector<int> path;
    int a = start;
    for (; std::find(path.begin(), path.end(), a) == path.end(); a = wait_of(a).actor) path.push_back(a);
    std::string text;
    for (auto at = std::find(path.begin(), path.end(), a); at != path.end(); ++at)
      text += (text.empty() ? "actor " : "; ") + sentence(*at);
    return text;
  }

 private:
  struct Reader {
    int actor, period;
  };

  bool done(int a) const { return fired_[size_t(a)] == steps * plan_.actors[size_t(a)].firings; }
  const std::string& name(int a) const { return plan_.actors[size_t(a)].name; }

  int64_t published(int r) const {
    auto& reg = plan_.registers[size_t(r)];
    int64_t period = out_period_[size_t(r)];
    return reg.initial + (reg.producer < 0 || period == 0 ? 0 : fired_[size_t(reg.producer)] / period);
  }
  // Tokens that every reader has finished with. What nobody reads is free at once.
  int64_t freed(int r) const {
    int64_t least = published(r);
    for (auto& reader : readers_[size_t(r)]) least = std::min(least, fired_[size_t(reader.actor)] / reader.period);
    return least;
  }

  Wait wait_of(int a) const {
    auto& actor = plan_.actors[size_t(a)];
    int64_t firing = fired_[size_t(a)];
    for (auto& port : actor.in)
      if (firing / port.period >= published(port.reg))
        return {plan_.registers[size_t(port.reg)].producer, port.reg, true};
    for (auto& port : actor.out) {
      auto& reg = plan_.registers[size_t(port.reg)];
      bool acquires = firing % port.period == 0;
      if (acquires && reg.initial + firing / port.period - freed(port.reg) >= reg.slots)
        return {slowest_reader(port.reg), port.reg, false};
    }
    return {};
  }

  int slowest_reader(int r) const {
    auto& readers = readers_[size_t(r)];
    auto slowest = std::min_element(readers.begin(), readers.end(), [&](auto& a, auto& b) {
      return fired_[size_t(a.actor)] / a.period < fired_[size_t(b.actor)] / b.period;
    });
    return slowest == readers.end() ? -1 : slowest->actor;
  }

  std::string sentence(int a) const {
    Wait wait = wait_of(a);
    check(wait.actor >= 0, "a stalled actor waits for another one");
    auto& reg = plan_.registers[size_t(wait.reg)];
    std::string other = word_of(name(wait.actor));
    if (wait.for_full)
      return fmt::format("{} waits for a full slot of register {} from actor {} ({} of {})", word_of(name(a)),
                         word_of(reg.name), other, published(wait.reg) - taken(a, wait.reg), reg.slots);
    return fmt::format(
        "{} waits for a free slot of register {}, which actor {} has not finished with ({} of {} in use)",
        word_of(name(a)), word_of(reg.name), other,
        reg.initial + fired_[size_t(a)] / out_period_[size_t(wait.reg)] - freed(wait.reg), reg.slots);
  }

  int64_t taken(int a, int r) const {
    for (auto& reader : readers_[size_t(r)])
      if (reader.actor == a) return fired_[size_t(a)] / reader.period;
    return 0;
  }

  const Plan& plan_;
  std::vector<int64_t> fired_;
  std::vector<int64_t> out_period_;  // per register; 0: nobody writes it
  std::vector<std::vector<Reader>> readers_;
};

}  // namespace

void verify_liveness(const Plan& plan) {
  verify_rates(plan);
  Play play(plan);
  int stalled = play.run();
  if (stalled >= 0)
    throw Error(Code::failed, "liveness: the plan stalls: " + play.cycle(stalled), {},
                "give a register of this cycle one slot more");
}

}  // namespace sluice
