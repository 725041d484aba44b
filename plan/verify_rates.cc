// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "plan/verify.h"

namespace sluice {
namespace {

class Rates {
 public:
  explicit Rates(const Plan& plan) : plan_(plan), tokens_(plan.registers.size(), -1) {}

  void run() {
    for (size_t a = 0; a < plan_.actors.size(); ++a) outs(int(a));
    for (size_t r = 0; r < plan_.registers.size(); ++r)
      if (plan_.registers[r].producer >= 0 && tokens_[r] < 0)
        refuse(plan_.actors[size_t(plan_.registers[r].producer)], int(r),
               "is named as its producer but has no out-port for it");
    for (size_t a = 0; a < plan_.actors.size(); ++a) ins(int(a));
  }

 private:
  [[noreturn]] void refuse(const PlanActor& actor, int reg, std::string_view why) const {
    throw Error(Code::value, fmt::format("rates: the actor {} and the register {}: it {}", word_of(actor.name),
                                         word_of(plan_.registers[size_t(reg)].name), why));
  }

  // Tokens that pass a port in one step.
  int64_t tokens(const PlanActor& actor, const Port& port) const {
    if (actor.firings % port.period != 0)
      refuse(actor, port.reg,
             fmt::format("fires {} times a step, no multiple of the port's period {}", actor.firings, port.period));
    return actor.firings / port.period;
  }

  void once(const PlanActor& actor, const std::vector<Port>& ports) const {
    std::vector<int> regs;
    for (auto& port : ports) regs.push_back(port.reg);
    std::sort(regs.begin(), regs.end());
    auto twice = std::adjacent_find(regs.begin(), regs.end());
    if (twice != regs.end()) refuse(actor, *twice, "has two ports for it");
  }

  void outs(int a) {
    auto& actor = plan_.actors[size_t(a)];
    once(actor, actor.out);
    for (auto& port : actor.out) {
      if (plan_.registers[size_t(port.reg)].producer != a)
        refuse(actor, port.reg, "has an out-port for it but is not its producer");
      tokens_[size_t(port.reg)] = tokens(actor, port);
    }
  }

  void ins(int a) const {
    auto& actor = plan_.actors[size_t(a)];
    once(actor, actor.in);
    for (auto& port : actor.in) {
      int producer = plan_.registers[size_t(port.reg)].producer;
      if (producer < 0) refuse(actor, port.reg, "has an in-port for a constant, which has no tokens");
      if (producer == a)
        refuse(actor, port.reg, "has an in-port for what it produces itself, which it reads without one");
      int64_t wanted = tokens(actor, port), made = tokens_[size_t(port.reg)];
      if (wanted != made)
        refuse(actor, port.reg,
               fmt::format("takes {} tokens a step, but {} makes {}", wanted,
                           word_of(plan_.actors[size_t(producer)].name), made));
    }
  }

  const Plan& plan_;
  std::vector<int64_t> tokens_;  // per register, a step; -1: nobody makes any
};

}  // namespace

void verify_rates(const Plan& plan) {
  verify_structure(plan);
  Rates(plan).run();
}

}  // namespace sluice
