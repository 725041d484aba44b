// SPDX-License-Identifier: Apache-2.0
#include "actors/watchdog.h"

#include <fmt/format.h>

#include "protocol/waits.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

std::string name_of(const Actor& actor) { return fmt::format("actor '{}' on rank {}", actor.plan->name, actor.rank); }

class Stall {
 public:
  explicit Stall(const Lowered& lowered) : lowered_(lowered) {
    for (auto& actor : lowered.actors) names_.push_back(name_of(*actor));
  }

  void add(const Stream::Report& report) {
    for (auto& ports : report.actors) states_[ports.actor] = &ports;
  }

  std::string text() {
    for (auto& [actor, ports] : states_) {
      for (size_t i = 0; i < ports->in.size(); ++i)
        if (actor->in[i].plan && ports->in[i].tokens == 0) lacks_token(*actor, actor->in[i]);
      for (size_t o = 0; o < ports->out.size(); ++o)
        if (ports->out[o].phase == 0 && ports->out[o].credits == 0) lacks_credit(*actor, *actor->out[o]);
    }
    return away_ + (waits_.empty() ? "" : wait_cycle(names_, waits_));
  }

 private:
  void lacks_token(const Actor& actor, const InLink& link) {
    Register* reg = lowered_.find(link.id, link.peer);
    if (!reg) {
      away_ += fmt::format("  {} waits for a full slot of '{}' (0 of {}) from rank {}, which is in another process\n",
                           names_[size_t(actor.id)], link.plan->name, link.plan->slots, link.peer);
      return;
    }
    Actor* producer = reg->producer;
    waits_.push_back({actor.id, producer->id,
                      fmt::format("a full slot of '{}' (0 of {}) from {}", link.plan->name, link.plan->slots,
                                  names_[size_t(producer->id)])});
  }

  void lacks_credit(const Actor& actor, const Register& reg) {
    for (auto& tap : reg.taps) {
      auto state = states_.find(tap.actor);  // none: it is on another rank
      if (state == states_.end() || state->second->in[tap.port].tokens == 0) continue;
      waits_.push_back({actor.id, tap.actor->id,
                        fmt::format("a credit of '{}' (0 of {}), held by {}", reg.plan->name, reg.plan->slots,
                                    names_[size_t(tap.actor->id)])});
    }
  }

  const Lowered& lowered_;
  std::vector<std::string> names_;
  std::map<const Actor*, const Stream::Report::Ports*> states_;
  std::vector<Wait> waits_;
  std::string away_;
};

}  // namespace

int64_t firings_of(const Lowered& lowered) {
  int64_t sum = 0;
  for (auto& actor : lowered.actors) sum += actor->fired.load(std::memory_order_relaxed);
  return sum;
}

void fail_stalled(World& world, Lowered& lowered, const std::string& headline) {
  for (auto& stream : lowered.streams) stream->post({Message::report, 0, 0, nullptr});
  while (world.host->drive_one()) {
  }
  // Streams answer at once unless they are inside a kernel.
  std::vector<Stream::Report> reports(lowered.streams.size());
  auto until = Clock::now() + std::chrono::seconds(1);
  for (bool all = false; !all && Clock::now() < until;) {
    all = true;
    for (size_t s = 0; s < reports.size(); ++s) {
      if (!reports[s].done) reports[s] = lowered.streams[s]->take_report();
      all = all && reports[s].done;
    }
    std::unique_lock lock(world.mutex);
    if (!all) world.changed.wait_for(lock, std::chrono::milliseconds(10));
  }
  Stall stall(lowered);
  std::string busy;
  for (size_t s = 0; s < reports.size(); ++s) {
    stall.add(reports[s]);
    const Actor* firing = lowered.streams[s]->firing.load(std::memory_order_relaxed);
    if (!reports[s].done && firing) busy += "  " + name_of(*firing) + " is still inside a firing\n";
  }
  Failure failure;
  failure.actor = "watchdog";
  failure.error = Error(Code::failed, headline + "\n" + busy + stall.text());
  world.fail(std::move(failure));
}

Watchdog::Watchdog(World& world, Lowered& lowered, std::function<bool()> outstanding)
    : world_(world), lowered_(lowered), outstanding_(std::move(outstanding)), thread_([this] { work(); }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Watchdog::work() {
  auto limit = world_.options.watchdog;
  auto look = std::max<std::chrono::milliseconds>(limit / 8, std::chrono::milliseconds(1));
  int64_t seen = -1;
  auto moved = Clock::now();
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, look, [&] { return stopping_; })) return;
    }
    int64_t now = firings_of(lowered_);
    if (now != seen || !outstanding_()) {
      seen = now;
      moved = Clock::now();
    } else if (Clock::now() - moved >= limit && !world_.stopped.load()) {
      fail_stalled(world_, lowered_,
                   fmt::format("no actor fired for {} ms while granted steps are not done", limit.count()));
      return;
    }
  }
}

}  // namespace sluice
