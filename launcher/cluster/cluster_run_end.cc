// SPDX-License-Identifier: Apache-2.0
// A run that goes on: commands and results on their way through, the first cause of a failure, and the end.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/cluster/hall.h"

namespace sluice {
namespace {

// How long one waits for somebody who knows more than what is known.
kj::Duration patience(ClusterRun::Weight weight, int silence_ms_max) {
  switch (weight) {
    case ClusterRun::consequence:  // for the loss itself: a silent worker is noticed within its beat
      return (silence_ms_max / 3 + 500) * kj::MILLISECONDS;
    case ClusterRun::loss:  // for how its process ended, or what failed in it
      return 300 * kj::MILLISECONDS;
    default: return 0 * kj::MILLISECONDS;
  }
}

constexpr auto end_limit = 10 * kj::SECONDS;

}  // namespace

void ClusterRun::notice(const std::string& text) {
  auto request = events_.tellRequest();
  put(request.initEvent(), {.kind = RunEvent::notice, .text = text});
  tasks_.add(request.send().ignoreResult());
}

std::string ClusterRun::text_of_member(const Member& member) const {
  auto& worker = member.worker;
  std::string ranks = member.ranks == 1
                          ? fmt::format("rank {}", member.first_rank)
                          : fmt::format("ranks {}-{}", member.first_rank, member.first_rank + member.ranks - 1);
  return fmt::format("worker {} (host {}, pid {}, {})", worker.number, worker.host, worker.pid, ranks);
}

// ---- to and fro

kj::Promise<void> ClusterRun::run(wire::Run::RunParams::Reader params, wire::Run::RunResults::Builder results) {
  kj::Vector<kj::Promise<capnp::Response<wire::Share::RunResults>>> all;
  int to = params.getTo(), but = params.getBut();
  for (size_t p = 0; p < members_.size() && !decided_; ++p) {
    if ((to >= 0 && to != int(p)) || but == int(p)) continue;
    KJ_IF_MAYBE (share, members_[p].share) {
      auto request = share->runRequest();
      request.setCommand(params.getCommand());
      all.add(request.send());
    }
  }
  auto self = shared_from_this();
  auto answered = kj::joinPromises(all.releaseAsArray()).then([self, results](auto&& answers) mutable {
    auto list = results.initReplies(kj::uint(answers.size()));
    for (kj::uint i = 0; i < list.size(); ++i) {
      auto reply = answers[i].getReply();
      list.setWithCaveats(i, reply);
      if (reply.hasFailure() && self->is_consequence(failure_of(reply.getFailure())))
        return self->when_decided_.addBranch();  // what it follows from is the answer
    }
    return kj::Promise<void>(kj::READY_NOW);
  });
  // A worker that is gone: the run's failure is the answer.
  auto lost = [self](kj::Exception&& why) {
    self->fail(consequence, Error(Code::failed, sluice::text_of(why)));
    return self->when_decided_.addBranch();
  };
  return answered.catch_(kj::mv(lost)).exclusiveJoin(when_decided_.addBranch()).then([self, results]() mutable {
    if (self->decided_) put(results.initReplies(1)[0].initFailure(), {*self->error_});
  });
}

kj::Promise<void> ClusterRun::tell(int process, wire::Event::Reader event) {
  auto failure = guarded([&] { return failure_of(event.getFailure()); });
  if (failure) {
    try {
      check(failure, size_t(process));
    } catch (const kj::Exception&) {
    }
    return kj::READY_NOW;
  }
  if (decided_) return kj::READY_NOW;
  auto request = events_.tellRequest();
  request.setEvent(event);
  return request.send().ignoreResult();
}

// ---- the first cause

bool ClusterRun::is_consequence(const std::optional<Failure>& failure) {
  if (!failure) return false;
  auto& error = failure->error;
  if (failure->lost_process >= 0) {
    size_t other = std::min(size_t(failure->lost_process), members_.size() - 1);
    fail(consequence, Error(Code::failed, fmt::format("the connection to {} is lost: {}",
                                                      text_of_member(members_[other]), error.message())));
    return true;
  }
  if (!failure->consequence && error.code() != Code::cancelled) return false;
  fail(consequence, Error(Code::failed, error.message(), error.place(), error.next()));
  return true;
}

void ClusterRun::check(const std::optional<Failure>& failure, size_t process) {
  if (!failure) return;
  if (!is_consequence(failure)) {
    auto& error = failure->error;
    auto& worker = members_[process].worker;
    fail(cause,
         Error(error.code(),
               fmt::format("{} (worker {}, host {}, pid {})", error.message(), worker.number, worker.host, worker.pid),
               error.place(), error.next()));
  }
  kj::throwFatalException(KJ_EXCEPTION(FAILED, "the run has failed"));
}

void ClusterRun::worker_lost(int number, const std::string& how, bool explained) {
  for (auto& member : members_)
    if (member.worker.number == number)
      fail(explained ? explained_loss : loss, Error(Code::failed, text_of_member(member) + " " + how));
}

void ClusterRun::worker_ended(const std::string& host, int64_t pid, const std::string& how) {
  for (auto& member : members_)
    if (member.worker.host == host && member.worker.pid == pid)
      fail(explained_loss, Error(Code::failed, text_of_member(member) + " " + how));
}

void ClusterRun::fail(Weight weight, const Error& error) {
  if (decided_ || weight <= weight_) return;
  weight_ = weight;
  error_ = error;
  uint64_t hold = ++holds_;
  auto wait = patience(weight, hall_.options().silence_ms_max);
  if (wait == 0 * kj::SECONDS) return decide();
  tasks_.add(hall_.timer().afterDelay(wait).then([self = weak_from_this(), hold] {
    if (auto run = self.lock(); run && run->holds_ == hold) run->decide();
  }));
}

void ClusterRun::decide() {
  if (decided_) return;
  decided_ = true;
  auto request = events_.tellRequest();
  put(request.initEvent(), {.kind = RunEvent::failed, .failure = Failure{*error_}});
  tasks_.add(request.send().ignoreResult());
  hall_.event({ClusterEvent::run_failed, 0, "", 0, error_->what()});
  decide_->fulfill();
  tasks_.add(end_parts());
}

// ---- the end

// Promises that this object keeps hold it weakly: else it would never go.
kj::Promise<void> ClusterRun::end_part(size_t process) {
  KJ_IF_MAYBE (share, members_[process].share) {
    auto late = hall_.timer().afterDelay(end_limit).then([self = weak_from_this(), process] {
      if (auto run = self.lock())
        run->hall_.dismiss(run->members_[process].worker.number,
                           "does not end its part of a run; it is not used any more");
    });
    return share->endRequest().send().ignoreResult().catch_([](kj::Exception&&) {}).exclusiveJoin(kj::mv(late));
  }
  return kj::READY_NOW;
}

// Once: whoever asks again waits for the same.
kj::Promise<void> ClusterRun::end_parts() {
  if (parts_ended_ == nullptr) {
    kj::Vector<kj::Promise<void>> all;
    for (size_t p = 0; p < members_.size(); ++p) all.add(end_part(p));
    parts_ended_ = kj::joinPromises(all.releaseAsArray())
                       .then([self = weak_from_this()] {
                         auto run = self.lock();
                         if (!run) return;
                         for (auto& member : run->members_) member.share = nullptr, member.over = true;
                         run->hall_.seats_changed();
                       })
                       .fork();
  }
  return KJ_ASSERT_NONNULL(parts_ended_).addBranch();
}

kj::Promise<void> ClusterRun::end() {
  if (!decided_) {
    decided_ = true;
    error_ = Error(Code::cancelled, "the run was ended");
    decide_->fulfill();
  }
  return end_parts().then([self = shared_from_this()] { self->hall_.forget(self->id_); });
}

}  // namespace sluice
