// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "launcher/cluster/handshake.h"
#include "launcher/cluster/rpc.h"
#include "launcher/cluster/share.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

constexpr auto join_limit = 30s, end_limit = 5s;

std::string machine_name() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "localhost";
}

// Why the worker ends, for the thread that waits.
class Ending {
 public:
  Ending() : bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  int handle() const { return bell_.get(); }
  void set(std::optional<Error> why) {
    std::lock_guard lock(mutex_);
    if (set_) return;
    set_ = true, why_ = std::move(why);
    uint64_t one = 1;
    [[maybe_unused]] auto written = write(bell_.get(), &one, sizeof one);
  }
  std::optional<Error> why() {
    std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  Handle bell_;
  std::mutex mutex_;
  bool set_ = false;
  std::optional<Error> why_;
};

// Everything of the worker that lives on the loop's thread.
class WorkerSide : public std::enable_shared_from_this<WorkerSide>, private kj::TaskSet::ErrorHandler {
 public:
  WorkerSide(kj::AsyncIoContext& io, Loop*& loop, int fd, const WorkerOptions& options, Ending& ending)
      : loop_(loop),
        options_(options),
        ending_(ending),
        timer_(io.provider->getTimer()),
        link_(io, fd, nullptr),
        gate_(link_.bootstrap().castAs<wire::WorkerGate>()),
        tasks_(*this) {}
  ~WorkerSide() { flow_->close(); }

  void join();
  kj::Promise<void> leave();  // ends what runs, and says good-bye

  wire::Share::Client set_up(Setup setup, wire::Events::Client events);
  Share* share(uint64_t id);
  kj::Promise<void> end(uint64_t id);
  void end_later(uint64_t id) { tasks_.add(end(id)); }
  void dismissed() { ending_.set(std::nullopt); }
  Loop& loop() { return *loop_; }

 private:
  struct Part {
    std::unique_ptr<Share> share;
    wire::Events::Client events;
    kj::Maybe<kj::ForkedPromise<void>> ended;  // set: on its way out
  };

  void taskFailed(kj::Exception&&) override {}
  void lost(const std::string& why);
  void tell(uint64_t id, const RunEvent& event);

  Loop*& loop_;
  WorkerOptions options_;
  Ending& ending_;
  kj::Timer& timer_;
  std::shared_ptr<Flow> flow_ = std::make_shared<Flow>();
  Link link_;
  wire::WorkerGate::Client gate_;
  std::map<uint64_t, Part> parts_;
  uint64_t parts_made_ = 0;
  kj::TaskSet tasks_;
};

class ShareServer final : public wire::Share::Server {
 public:
  ShareServer(std::weak_ptr<WorkerSide> side, uint64_t id) : side_(std::move(side)), id_(id) {}
  ~ShareServer() noexcept(false) {
    if (auto side = side_.lock()) side->end_later(id_);
  }

  kj::Promise<void> plan(PlanContext context) override {
    if (auto* share = here()) share->add_plan(vector_of(context.getParams().getData()));
    return kj::READY_NOW;
  }

  kj::Promise<void> prepare(PrepareContext context) override {
    using Answer = std::pair<Share::Failed, Addresses>;
    return ask<Answer>([](Share& share, auto done) {
             share.prepare([done](Share::Failed failed, Addresses addresses) {
               done({std::move(failed), std::move(addresses)});
             });
           })
        .then([context](std::shared_ptr<Answer> answer) mutable {
          auto results = context.getResults();
          if (answer->first) put(results.initFailure(), *answer->first);
          put(results.initAddresses(), answer->second);
        });
  }

  kj::Promise<void> connect(ConnectContext context) override {
    using Answer = std::pair<Share::Failed, int64_t>;
    std::vector<Addresses> all;
    for (auto addresses : context.getParams().getAddresses()) guarded([&] { all.push_back(addresses_of(addresses)); });
    return ask<Answer>([all = std::move(all)](Share& share, auto done) mutable {
             share.connect(std::move(all), [done](Share::Failed failed, int64_t rows) {
               done({std::move(failed), rows});
             });
           })
        .then([context](std::shared_ptr<Answer> answer) mutable {
          auto results = context.getResults();
          if (answer->first) put(results.initFailure(), *answer->first);
          results.setRows(answer->second);
        });
  }

  kj::Promise<void> run(RunContext context) override {
    Command command = guarded([&] { return command_of(context.getParams().getCommand()); });
    context.releaseParams();
    return ask<Reply>(
               [command = std::move(command)](Share& share, auto done) mutable { share.run(std::move(command), done); })
        .then([context](std::shared_ptr<Reply> reply) mutable { put(context.getResults().initReply(), *reply); });
  }

  kj::Promise<void> end(EndContext) override {
    auto side = side_.lock();
    return side ? side->end(id_) : kj::Promise<void>(kj::READY_NOW);
  }

 private:
  Share* here() {
    auto side = side_.lock();
    return side ? side->share(id_) : nullptr;
  }

  template <class T, class Start>
  kj::Promise<std::shared_ptr<T>> ask(Start start) {
    auto side = side_.lock();
    auto* share = here();
    if (!share) return KJ_EXCEPTION(FAILED, "the run has ended");
    auto shared = std::make_shared<Start>(std::move(start));
    return side->loop().answer<T>([share, shared](std::function<void(T)> done) { (*shared)(*share, std::move(done)); });
  }

  std::weak_ptr<WorkerSide> side_;
  uint64_t id_;
};

class WorkerServer final : public wire::Worker::Server {
 public:
  explicit WorkerServer(std::weak_ptr<WorkerSide> side) : side_(std::move(side)) {}

  kj::Promise<void> ping(PingContext) override { return kj::READY_NOW; }

  kj::Promise<void> setUp(SetUpContext context) override {
    auto side = side_.lock();
    if (!side) return KJ_EXCEPTION(DISCONNECTED, "the worker ends");
    auto params = context.getParams();
    Setup setup = guarded([&] { return setup_of(params.getSetup()); });
    context.getResults().setShare(side->set_up(std::move(setup), params.getEvents()));
    return kj::READY_NOW;
  }

  kj::Promise<void> dismiss(DismissContext) override {
    if (auto side = side_.lock()) side->dismissed();
    return kj::READY_NOW;
  }

 private:
  std::weak_ptr<WorkerSide> side_;
};

void WorkerSide::join() {
  auto request = gate_.joinRequest();
  put(request.initInfo(),
      WorkerInfo{0, options_.host.empty() ? machine_name() : options_.host, getpid(), options_.devices, 0});
  request.setWorker(kj::heap<WorkerServer>(weak_from_this()));
  tasks_.add(request.send().then(
      [this](auto&& answer) {
        if (auto failure = failure_of(answer.getFailure())) ending_.set(failure->error);
      },
      [](kj::Exception&&) {}));  // the connection is gone, which is noticed below
  tasks_.add(link_.lost([this] { return gate_.pingRequest().send().ignoreResult(); }, options_.silence_ms_max)
                 .then([this](std::string why) { lost(why); }));
}

void WorkerSide::lost(const std::string& why) {
  flow_->close();
  ending_.set(Error(Code::failed, fmt::format("the coordinator at {} {}", text_of(options_.to.address), why), {},
                    "see what it printed"));
}

wire::Share::Client WorkerSide::set_up(Setup setup, wire::Events::Client events) {
  uint64_t id = ++parts_made_;
  auto tell = [this, id, flow = flow_](RunEvent event) {
    int64_t bytes = size_of(event.chunks);
    if (!flow->take(bytes)) return;
    loop_->post([weak = weak_from_this(), id, event = std::move(event)] {
      if (auto side = weak.lock()) side->tell(id, event);
    });
  };
  Part part{std::make_unique<Share>(std::move(setup), options_.listen, tell), kj::mv(events), nullptr};
  parts_.emplace(id, std::move(part));
  return kj::heap<ShareServer>(weak_from_this(), id);
}

void WorkerSide::tell(uint64_t id, const RunEvent& event) {
  int64_t bytes = size_of(event.chunks);
  auto found = parts_.find(id);
  if (found == parts_.end()) return flow_->give(bytes);
  auto request = found->second.events.tellRequest();
  put(request.initEvent(), event);
  tasks_.add(request.send().ignoreResult().then([flow = flow_, bytes] { flow->give(bytes); },
                                                [flow = flow_, bytes](kj::Exception&&) { flow->give(bytes); }));
}

Share* WorkerSide::share(uint64_t id) {
  auto found = parts_.find(id);
  return found == parts_.end() ? nullptr : found->second.share.get();
}

kj::Promise<void> WorkerSide::end(uint64_t id) {
  auto found = parts_.find(id);
  if (found == parts_.end()) return kj::READY_NOW;
  auto& part = found->second;
  if (part.ended == nullptr) {
    using Done = std::function<void(bool)>;
    auto gone = loop_->answer<bool>([&](Done done) { part.share->end([done] { done(true); }); });
    // Its thread is at its end: to destroy it waits for nothing.
    part.ended = gone.then([this, id](std::shared_ptr<bool>) { parts_.erase(id); }).fork();
  }
  KJ_IF_MAYBE (ended, part.ended) {
    return ended->addBranch();
  }
  return kj::READY_NOW;
}

kj::Promise<void> WorkerSide::leave() {
  kj::Vector<kj::Promise<void>> all;
  // The coordinator hears of it first: what follows is no loss.
  auto heard = gate_.leaveRequest().send().ignoreResult().catch_([](kj::Exception&&) {});
  all.add(heard.exclusiveJoin(timer_.afterDelay(500 * kj::MILLISECONDS)));
  std::vector<uint64_t> ids;
  for (auto& [id, part] : parts_) ids.push_back(id);
  for (auto id : ids) all.add(end(id));
  auto limit = timer_.afterDelay(std::chrono::milliseconds(end_limit).count() * kj::MILLISECONDS).then([] {
    fmt::print(stderr, "sluice: error: a run does not end; this worker does\n");
    std::fflush(nullptr);
    _exit(1);
  });
  return kj::joinPromises(all.releaseAsArray()).exclusiveJoin(kj::mv(limit));
}

}  // namespace

int run_worker(const WorkerOptions& options, int stop) {
  int fd = call_coordinator(options.to, Role::worker, join_limit, true);
  Ending ending;
  Loop* self = nullptr;
  std::shared_ptr<WorkerSide> side;
  Loop loop([&](kj::AsyncIoContext& io) {
    side = std::make_shared<WorkerSide>(io, self, fd, options, ending);
    return side;
  });
  self = &loop;
  std::weak_ptr<WorkerSide> weak = side;
  side.reset();
  loop.post([weak] { weak.lock()->join(); });
  pollfd waits[2] = {{ending.handle(), POLLIN, 0}, {stop, POLLIN, 0}};
  while (poll(waits, 2, -1) < 0) {
  }
  ending.set(std::nullopt);  // who leaves loses the coordinator of its own will
  loop.stop([weak] { return weak.lock()->leave(); });
  if (auto why = ending.why()) throw Error(*why);
  return 0;
}

}  // namespace sluice
