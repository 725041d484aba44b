// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/desk.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

class EventsServer final : public wire::Events::Server {
 public:
  explicit EventsServer(std::shared_ptr<Inbox> inbox) : inbox_(std::move(inbox)) {}
  kj::Promise<void> tell(TellContext context) override {
    auto event = guarded([&] { return event_of(context.getParams().getEvent()); });
    context.releaseParams();
    inbox_->push(std::move(event));
    return kj::READY_NOW;
  }

 private:
  std::shared_ptr<Inbox> inbox_;
};

class CallerServer final : public wire::Caller::Server {
 public:
  kj::Promise<void> ping(PingContext) override { return kj::READY_NOW; }
};

}  // namespace

Error Desk::error_of(const kj::Exception& why) const {
  if (lost_) return *lost_;
  if (why.getType() == kj::Exception::Type::DISCONNECTED) return Error(Code::failed, name_ + " is gone");
  return Error(Code::failed, fmt::format("{}: {}", name_, text_of(why)));
}

void Desk::lost(const std::string& how) {
  lost_ = Error(Code::failed, fmt::format("{} {}", name_, how), {}, "see what it printed");
  flow_->close();
  for (auto& [id, going] : runs_) going.inbox->fail(*lost_);
  runs_.clear();
}

Coming<bool> Desk::join() {
  auto request = gate_.joinRequest();
  request.setClient(kj::heap<CallerServer>());
  return request.send().then([this](auto&& answer) {
    auto ping = [this] { return gate_.pingRequest().send().ignoreResult(); };
    tasks_.add(link_.lost(ping, std::max(100, answer.getSilenceMs())).then([this](std::string how) { lost(how); }));
    return outcome<bool>(true);
  });
}

Coming<std::vector<WorkerInfo>> Desk::workers() {
  return gate_.workersRequest().send().then([](auto&& answer) {
    std::vector<WorkerInfo> all;
    for (auto worker : answer.getWorkers()) all.push_back(worker_of(worker));
    return outcome<std::vector<WorkerInfo>>(std::move(all));
  });
}

Coming<uint64_t> Desk::start(const Request& request, const std::shared_ptr<Inbox>& inbox) {
  auto call = gate_.startRequest();
  put(call.initRequest(), request);
  call.setEvents(kj::heap<EventsServer>(inbox));
  return call.send().then([this, inbox](auto&& answer) {
    auto failure = failure_of(answer.getFailure());
    if (!failure) runs_.emplace(++runs_made_, Going{answer.getRun(), inbox});
    return outcome<uint64_t>(runs_made_, failure);
  });
}

Coming<bool> Desk::plan(uint64_t id, const std::vector<std::byte>& bytes, size_t offset) {
  auto call = run(id).planRequest();
  size_t size = std::min(chunk_bytes_max, bytes.size() - offset);
  call.setData({reinterpret_cast<const kj::byte*>(bytes.data()) + offset, size});
  return call.send().then([](auto&&) { return outcome<bool>(true); });
}

Coming<RemoteRun> Desk::begin(uint64_t id) {
  return run(id).beginRequest().send().then([](auto&& answer) {
    auto started = answer.getStarted();
    RemoteRun remote{.rows = started.getRows()};
    for (int process : started.getProcessOfRank()) remote.process_of_rank.push_back(process);
    return outcome<RemoteRun>(std::move(remote), failure_of(started.getFailure()));
  });
}

Coming<bool> Desk::end(uint64_t id) {
  auto call = run(id).endRequest();
  runs_.erase(id);
  return call.send().then([](auto&&) { return outcome<bool>(true); });
}

Coming<JobReply> Desk::ask(const JobCall& call) {
  auto request = gate_.jobRequest();
  put(request.initCall(), call);
  return request.send().then([](auto&& answer) { return outcome<JobReply>(job_reply_of(answer.getReply())); });
}

void Desk::send(uint64_t id, int to, int but, const Command& command, std::function<void(RunLine::Replies)> done) {
  int64_t bytes = size_of(command.chunks);
  auto finish = [flow = flow_, bytes, done = std::move(done)](RunLine::Replies replies) {
    flow->give(bytes);
    done(std::move(replies));
  };
  auto found = runs_.find(id);
  if (found == runs_.end())
    return finish({{.failure = Failure{lost_.value_or(Error(Code::failed, "the run has ended"))}}});
  auto call = found->second.run.runRequest();
  call.setTo(to);
  call.setBut(but);
  put(call.initCommand(), command);
  tasks_.add(call.send().then(
      [finish](auto&& answer) {
        RunLine::Replies replies;
        try {
          for (auto reply : answer.getReplies()) replies.push_back(reply_of(reply));
        } catch (const Error& error) {
          replies = {{.failure = Failure{error}}};
        }
        finish(std::move(replies));
      },
      [this, finish](kj::Exception&& why) { finish({{.failure = Failure{error_of(why)}}}); }));
}

}  // namespace sluice
