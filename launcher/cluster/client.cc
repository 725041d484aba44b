// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "launcher/cluster/handshake.h"
#include "launcher/cluster/remote.h"
#include "launcher/cluster/rpc.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

constexpr auto connect_limit = 10s, end_limit = 12s;

// A value that another thread waits for.
template <class T>
struct Slot {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<T> value;
  std::optional<Error> error;

  void set(std::optional<T> v, std::optional<Error> e) {
    std::lock_guard lock(mutex);
    value = std::move(v), error = std::move(e);
    changed.notify_all();
  }
  // False when the time is over.
  bool wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, timeout, [&] { return value || error; });
  }
  T take() {
    std::lock_guard lock(mutex);
    if (error) throw Error(*error);
    return std::move(*value);
  }
};

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

// Everything of a client's connection that lives on the loop's thread.
class Desk : private kj::TaskSet::ErrorHandler {
 public:
  Desk(kj::AsyncIoContext& io, int fd, const std::string& name, std::shared_ptr<Flow> flow)
      : name_(name),
        flow_(std::move(flow)),
        link_(io, fd, nullptr),
        gate_(link_.bootstrap().castAs<wire::ClientGate>()),
        tasks_(*this) {}
  ~Desk() { flow_->close(); }

  // Calls `make(*this)`, a promise of a T by pointer, and puts into the slot what comes of it.
  template <class T, class Make>
  void answer(const std::shared_ptr<Slot<T>>& slot, Make&& make) {
    try {
      tasks_.add(make(*this).then([slot](std::shared_ptr<T> value) { slot->set(std::move(*value), {}); },
                                  [this, slot](kj::Exception&& why) { slot->set({}, error_of(why)); }));
    } catch (const Error& error) {
      slot->set({}, error);
    } catch (const kj::Exception& why) {
      slot->set({}, error_of(why));
    }
  }

  kj::Promise<std::shared_ptr<bool>> join();
  kj::Promise<std::shared_ptr<std::vector<WorkerInfo>>> workers();
  kj::Promise<std::shared_ptr<uint64_t>> start(const Request& request, const std::shared_ptr<Inbox>& inbox);
  kj::Promise<std::shared_ptr<bool>> plan(uint64_t run, const std::vector<std::byte>& bytes, size_t offset);
  kj::Promise<std::shared_ptr<RemoteRun>> begin(uint64_t run);
  kj::Promise<std::shared_ptr<bool>> end(uint64_t run);
  void send(uint64_t run, int to, int but, const Command& command, std::function<void(RunLine::Replies)> done);

 private:
  struct Going {
    wire::Run::Client run;
    std::shared_ptr<Inbox> inbox;
  };

  void taskFailed(kj::Exception&&) override {}
  void lost(const std::string& how);
  Error error_of(const kj::Exception& why) const;
  wire::Run::Client& run(uint64_t id) {
    auto found = runs_.find(id);
    if (found == runs_.end()) throw Error(Code::failed, "the run has ended");
    return found->second.run;
  }

  std::string name_;
  std::shared_ptr<Flow> flow_;
  Link link_;
  wire::ClientGate::Client gate_;
  std::map<uint64_t, Going> runs_;
  uint64_t runs_made_ = 0;
  std::optional<Error> lost_;
  kj::TaskSet tasks_;
};

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

kj::Promise<std::shared_ptr<bool>> Desk::join() {
  auto request = gate_.joinRequest();
  request.setClient(kj::heap<CallerServer>());
  return request.send().then([this](auto&& answer) {
    auto ping = [this] { return gate_.pingRequest().send().ignoreResult(); };
    tasks_.add(link_.lost(ping, std::max(100, answer.getSilenceMs())).then([this](std::string how) { lost(how); }));
    return std::make_shared<bool>(true);
  });
}

kj::Promise<std::shared_ptr<std::vector<WorkerInfo>>> Desk::workers() {
  return gate_.workersRequest().send().then([](auto&& answer) {
    auto all = std::make_shared<std::vector<WorkerInfo>>();
    for (auto worker : answer.getWorkers()) all->push_back(worker_of(worker));
    return all;
  });
}

kj::Promise<std::shared_ptr<uint64_t>> Desk::start(const Request& request, const std::shared_ptr<Inbox>& inbox) {
  auto call = gate_.startRequest();
  put(call.initRequest(), request);
  call.setEvents(kj::heap<EventsServer>(inbox));
  return call.send().then([this, inbox](auto&& answer) {
    if (auto failure = failure_of(answer.getFailure())) {
      inbox->fail(failure->error);
      return std::make_shared<uint64_t>(0);
    }
    runs_.emplace(++runs_made_, Going{answer.getRun(), inbox});
    return std::make_shared<uint64_t>(runs_made_);
  });
}

kj::Promise<std::shared_ptr<bool>> Desk::plan(uint64_t id, const std::vector<std::byte>& bytes, size_t offset) {
  auto call = run(id).planRequest();
  size_t size = std::min(chunk_bytes_max, bytes.size() - offset);
  call.setData({reinterpret_cast<const kj::byte*>(bytes.data()) + offset, size});
  return call.send().then([](auto&&) { return std::make_shared<bool>(true); });
}

kj::Promise<std::shared_ptr<RemoteRun>> Desk::begin(uint64_t id) {
  return run(id).beginRequest().send().then([this, id](auto&& answer) {
    auto started = answer.getStarted();
    auto remote = std::make_shared<RemoteRun>();
    auto found = runs_.find(id);
    if (found == runs_.end()) return remote;
    remote->inbox = found->second.inbox;
    if (auto failure = failure_of(started.getFailure())) remote->inbox->fail(failure->error);
    remote->rows = started.getRows();
    for (int process : started.getProcessOfRank()) remote->process_of_rank.push_back(process);
    return remote;
  });
}

kj::Promise<std::shared_ptr<bool>> Desk::end(uint64_t id) {
  auto call = run(id).endRequest();
  runs_.erase(id);
  return call.send().then([](auto&&) { return std::make_shared<bool>(true); });
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

}  // namespace

// ---- the client's threads

struct Cluster::Impl : std::enable_shared_from_this<Cluster::Impl> {
  std::shared_ptr<Flow> flow = std::make_shared<Flow>();
  Desk* desk = nullptr;  // lives and dies with the loop's thread
  std::unique_ptr<Loop> loop;

  explicit Impl(const Credentials& credentials) {
    int fd = call_coordinator(credentials, Role::client, connect_limit, false);
    loop = std::make_unique<Loop>([&](kj::AsyncIoContext& io) {
      auto made = std::make_shared<Desk>(io, fd, "the coordinator at " + text_of(credentials.address), flow);
      desk = made.get();
      return made;
    });
    call<bool>([](Desk& at) { return at.join(); });
  }
  ~Impl() { loop->stop(); }

  template <class T, class Make>
  std::shared_ptr<Slot<T>> post(Make make) {
    auto slot = std::make_shared<Slot<T>>();
    loop->post([this, slot, make] { desk->answer<T>(slot, make); });
    return slot;
  }
  template <class T, class Make>
  T call(Make make) {
    auto slot = post<T>(std::move(make));
    while (!slot->wait(1h)) {
    }
    return slot->take();
  }

  RemoteRun begin(uint64_t run, const std::vector<std::byte>& plan, const RunRequest& request, Inbox& inbox);
};

namespace {

class Line final : public RunLine {
 public:
  Line(std::shared_ptr<Flow> flow, Loop& loop, Desk& desk, std::shared_ptr<void> connection, uint64_t run)
      : connection_(std::move(connection)), flow_(std::move(flow)), loop_(loop), desk_(desk), run_(run) {}
  ~Line() override {
    auto slot = std::make_shared<Slot<bool>>();
    loop_.post([this_desk = &desk_, run = run_, slot] {
      this_desk->answer<bool>(slot, [run](Desk& desk) { return desk.end(run); });
    });
    slot->wait(end_limit);
  }
  void send(int to, int but, Command command, std::function<void(Replies)> done) override {
    flow_->take(size_of(command.chunks));  // where it is closed, the desk answers
    auto shared = std::make_shared<Command>(std::move(command));
    loop_.post([desk = &desk_, run = run_, to, but, shared, done = std::move(done)] {
      desk->send(run, to, but, *shared, done);
    });
  }

 private:
  std::shared_ptr<void> connection_;  // keeps loop and desk
  std::shared_ptr<Flow> flow_;
  Loop& loop_;
  Desk& desk_;
  uint64_t run_;
};

Request request_for(const RunRequest& request, const std::vector<std::byte>& plan) {
  return {.name = request.name.empty() ? request.plan->job : request.name,
          .ranks = request.plan->ranks(),
          .plan_bytes = plan.size(),
          .plan_hash = XXH64(plan.data(), plan.size(), 0),
          .plugins = request.plugins,
          .threads = request.threads,
          .delay_seed = request.floor.delay_seed,
          .watchdog_ms = request.floor.watchdog.count()};
}

}  // namespace

RemoteRun Cluster::Impl::begin(uint64_t run, const std::vector<std::byte>& plan, const RunRequest& request,
                               Inbox& inbox) {
  for (size_t offset = 0; offset < plan.size(); offset += chunk_bytes_max)
    call<bool>([&](Desk& at) { return at.plan(run, plan, offset); });
  auto slot = post<RemoteRun>([run](Desk& at) { return at.begin(run); });
  bool over = false;
  while (!over) {
    over = slot->wait(100ms);
    for (auto& notice : inbox.take_notices()) {
      if (request.on_notice)
        request.on_notice(notice);
      else
        fmt::print(stderr, "sluice: {}\n", notice);
    }
    if (!over && request.while_waiting) request.while_waiting();
  }
  auto remote = slot->take();
  if (auto failure = inbox.failure()) throw Error(*failure);
  auto& of_rank = remote.process_of_rank;
  if (int(of_rank.size()) != request.plan->ranks() || !std::is_sorted(of_rank.begin(), of_rank.end()) ||
      of_rank[0] != 0)
    throw Error(Code::io, "the coordinator deals other ranks than the plan has");
  return remote;
}

Cluster::Cluster(const Credentials& credentials) : impl_(std::make_shared<Impl>(credentials)) {}
Cluster::~Cluster() = default;

std::unique_ptr<Runtime> Cluster::start(const RunRequest& request) {
  auto plan = encode(*request.plan);
  auto wanted = request_for(request, plan);
  auto inbox = std::make_shared<Inbox>(*request.plan);
  uint64_t id = impl_->call<uint64_t>([&](Desk& at) { return at.start(wanted, inbox); });
  if (auto failure = inbox->failure()) throw Error(*failure);
  auto line = std::make_unique<Line>(impl_->flow, *impl_->loop, *impl_->desk, impl_, id);
  auto remote = impl_->begin(id, plan, request, *inbox);
  remote.line = std::move(line);
  remote.inbox = inbox;
  return make_remote(*request.plan, std::move(remote));
}

std::vector<WorkerInfo> Cluster::workers() {
  return impl_->call<std::vector<WorkerInfo>>([](Desk& at) { return at.workers(); });
}

bool Cluster::lost() const { return impl_->flow->closed(); }

}  // namespace sluice
