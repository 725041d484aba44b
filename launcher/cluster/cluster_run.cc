// SPDX-License-Identifier: Apache-2.0
// A run on its way up: its plan comes, ranks are dealt, and each worker sets up its part. cluster_run_end.cc: how it
// goes on and ends.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "launcher/cluster/hall.h"

namespace sluice {
namespace {

constexpr auto first_notice = 3 * kj::SECONDS, next_notice = 10 * kj::SECONDS;

// What a worker sends for its part.
class PartEvents final : public wire::Events::Server {
 public:
  PartEvents(std::weak_ptr<ClusterRun> run, int process) : run_(std::move(run)), process_(process) {}
  kj::Promise<void> tell(TellContext context) override {
    auto run = run_.lock();
    return run ? run->tell(process_, context.getParams().getEvent()) : kj::Promise<void>(kj::READY_NOW);
  }

 private:
  std::weak_ptr<ClusterRun> run_;
  int process_;
};

}  // namespace

ClusterRun::ClusterRun(Hall& hall, uint64_t id, uint64_t client, Request request, wire::Events::Client events)
    : hall_(hall), id_(id), client_(client), request_(std::move(request)), events_(kj::mv(events)), tasks_(*this) {
  random_bytes(key_);
  auto pair = kj::newPromiseAndFulfiller<void>();
  decide_ = kj::mv(pair.fulfiller);
  when_decided_ = pair.promise.fork();
}

void ClusterRun::add_plan(capnp::Data::Reader bytes) {
  if (bytes.size() > request_.plan_bytes - plan_.size()) return;  // then its hash is wrong
  plan_.insert(plan_.end(), bytes.begin(), bytes.end());
}

kj::Promise<void> ClusterRun::begin(wire::Started::Builder started) {
  if (!members_.empty() || !stage_.empty() || decided_) {
    put(started.initFailure(), {error_.value_or(Error(Code::value, "the run has begun already"))});
    return kj::READY_NOW;
  }
  if (XXH64(plan_.data(), plan_.size(), 0) != request_.plan_hash)
    fail(cause, Error(Code::io, "the plan came damaged, or not whole"));
  stage_ = "devices";
  tasks_.add(tell_missing());
  auto self = shared_from_this();
  auto up = dealt()
                .then([self] { return self->set_up_all(); })
                .then([self] { return self->prepare_all(); })
                .then([self] { return self->connect_all(); })
                .catch_([self](kj::Exception&& why) {
                  // Of a worker that is gone: its own line says more.
                  self->fail(consequence, Error(Code::failed, sluice::text_of(why)));
                  return self->when_decided_.addBranch();
                });
  return up.exclusiveJoin(when_decided_.addBranch()).then([self, started]() mutable {
    self->stage_.clear();
    self->plan_ = {};
    if (self->decided_) return put(started.initFailure(), {*self->error_});
    started.setRows(self->rows_);
    auto list = started.initProcessOfRank(kj::uint(self->request_.ranks));
    for (size_t p = 0; p < self->members_.size(); ++p)
      for (int i = 0; i < self->members_[p].ranks; ++i) list.set(kj::uint(self->members_[p].first_rank + i), int(p));
    self->hall_.event({ClusterEvent::run_started, 0, "", 0, self->request_.name});
  });
}

// ---- devices

kj::Promise<void> ClusterRun::dealt() {
  auto pair = kj::newPromiseAndFulfiller<void>();
  seated_ = kj::mv(pair.fulfiller);
  hall_.queue().push_back(id_);
  hall_.seats_changed();
  if (members_.empty() && !decided_) {
    int free = 0;
    for (auto& seat : hall_.seats_for(client_)) free += std::max(0, seat.devices - seat.taken);
    notice(fmt::format("waiting for {} devices: {} are free, others run on the rest", request_.ranks, free));
  }
  return kj::mv(pair.promise);
}

bool ClusterRun::try_deal() {
  if (decided_ || !members_.empty()) return true;
  auto seats = hall_.seats_for(client_);
  if (auto why = never(seats, request_.ranks); !why.empty()) {
    fail(cause, Error(Code::failed, why, {},
                      seats.empty() ? "start some: sluice worker --join HOST:PORT"
                                    : "make [mesh] axes smaller, or add workers"));
    return true;
  }
  auto hands = deal(seats, request_.ranks);
  if (!hands) return false;
  int rank = 0;
  for (auto& hand : *hands) {
    auto& member = members_.emplace_back();
    member.worker = hall_.worker(hand.number)->info;
    member.first_rank = rank;
    member.ranks = hand.ranks;
    rank += hand.ranks;
  }
  KJ_IF_MAYBE (fulfiller, seated_) {
    (*fulfiller)->fulfill();
  }
  return true;
}

bool ClusterRun::holds(int number) const { return ranks_on(number) > 0; }

int ClusterRun::ranks_on(int number) const {
  for (auto& member : members_)
    if (member.worker.number == number && !member.over) return member.ranks;
  return 0;
}

// ---- stages: every worker does its part, and who is late is named

kj::Promise<void> ClusterRun::stage(const std::string& name,
                                    const std::function<kj::Promise<void>(size_t process)>& each) {
  stage_ = name;
  kj::Vector<kj::Promise<void>> all;
  for (size_t p = 0; p < members_.size(); ++p) {
    members_[p].waited_for = true;
    all.add(each(p).then([self = shared_from_this(), p] { self->members_[p].waited_for = false; }));
  }
  return kj::joinPromises(all.releaseAsArray());
}

kj::Promise<void> ClusterRun::tell_missing() {
  auto self = weak_from_this();
  return hall_.timer().afterDelay(first_notice).then([self]() -> kj::Promise<void> {
    auto run = self.lock();
    if (!run || run->stage_.empty() || run->decided_) return kj::READY_NOW;
    std::string missing;
    size_t there = 0;
    for (auto& member : run->members_)
      if (member.waited_for)
        missing += fmt::format("{}worker {} on host {}", missing.empty() ? "" : ", ", member.worker.number,
                               member.worker.host);
      else
        ++there;
    if (!missing.empty())
      run->notice(fmt::format("{}: {}/{}, missing {}", run->stage_, there, run->members_.size(), missing));
    return run->hall_.timer().afterDelay(next_notice - first_notice).then([self]() -> kj::Promise<void> {
      auto again = self.lock();
      return again ? again->tell_missing() : kj::Promise<void>(kj::READY_NOW);
    });
  });
}

kj::Promise<void> ClusterRun::set_up_all() {
  return stage("the plan on its way to workers", [this](size_t p) { return set_up(p); });
}

kj::Promise<void> ClusterRun::set_up(size_t process) {
  auto& member = members_[process];
  auto* peer = hall_.worker(member.worker.number);
  if (!peer) return KJ_EXCEPTION(DISCONNECTED, "a worker is gone");
  Setup setup{.request = request_, .run = id_, .key = key_, .process = int(process)};
  for (size_t p = 0; p < members_.size(); ++p) {
    setup.process_of_rank.insert(setup.process_of_rank.end(), size_t(members_[p].ranks), int(p));
    setup.host_of_process.push_back(members_[p].worker.host);
  }
  setup.workers_on_host = hall_.workers_on(member.worker.host);
  setup.silence_ms = hall_.options().silence_ms_max;
  auto request = KJ_ASSERT_NONNULL(peer->worker).setUpRequest();
  put(request.initSetup(), setup);
  request.setEvents(kj::heap<PartEvents>(weak_from_this(), int(process)));
  return request.send().then([self = shared_from_this(), process](auto&& answer) {
    self->members_[process].share = answer.getShare();
    return self->send_plan(process, 0);
  });
}

kj::Promise<void> ClusterRun::send_plan(size_t process, size_t offset) {
  if (offset == plan_.size()) return kj::READY_NOW;
  auto request = KJ_ASSERT_NONNULL(members_[process].share).planRequest();
  size_t bytes = std::min(chunk_bytes_max, plan_.size() - offset);
  request.setData({plan_.data() + offset, bytes});
  return request.send().then(
      [self = shared_from_this(), process, offset, bytes](auto&&) { return self->send_plan(process, offset + bytes); });
}

kj::Promise<void> ClusterRun::prepare_all() {
  return stage("workers ready to connect", [this](size_t process) {
    auto request = KJ_ASSERT_NONNULL(members_[process].share).prepareRequest();
    return request.send().then([self = shared_from_this(), process](auto&& answer) {
      self->check(failure_of(answer.getFailure()), process);
      self->members_[process].addresses = guarded([&] { return addresses_of(answer.getAddresses()); });
    });
  });
}

kj::Promise<void> ClusterRun::connect_all() {
  return stage("connected", [this](size_t process) {
    auto request = KJ_ASSERT_NONNULL(members_[process].share).connectRequest();
    auto list = request.initAddresses(kj::uint(members_.size()));
    for (kj::uint p = 0; p < list.size(); ++p) put(list[p], members_[p].addresses.value());
    return request.send().then([self = shared_from_this(), process](auto&& answer) {
      self->check(failure_of(answer.getFailure()), process);
      if (process == 0) self->rows_ = answer.getRows();
    });
  });
}

}  // namespace sluice
