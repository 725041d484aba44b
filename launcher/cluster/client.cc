// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "launcher/cluster/desk.h"
#include "launcher/cluster/handshake.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

constexpr auto connect_limit = 10s, end_limit = 12s, failed_end_limit = 2s;

}  // namespace

namespace {

class Line final : public RunLine {
 public:
  Line(std::shared_ptr<Flow> flow, Loop& loop, Desk& desk, std::shared_ptr<void> connection, uint64_t run,
       std::shared_ptr<Inbox> inbox)
      : connection_(std::move(connection)),
        flow_(std::move(flow)),
        inbox_(std::move(inbox)),
        loop_(loop),
        desk_(desk),
        run_(run) {}
  ~Line() override {
    auto slot = std::make_shared<Slot<bool>>();
    loop_.post([this_desk = &desk_, run = run_, slot] {
      this_desk->answer<bool>(slot, [run](Desk& desk) { return desk.end(run); });
    });
    // The next run may want what this one holds; but of a failed one some part may hang.
    slot->wait(inbox_->failure() ? failed_end_limit : end_limit);
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
  std::shared_ptr<Inbox> inbox_;
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

Cluster::Impl::Impl(const Credentials& credentials) {
  int fd = call_coordinator(credentials, Role::client, connect_limit, false);
  std::string name = "the coordinator at " + text_of(credentials.address);
  loop = std::make_unique<Loop>([&](kj::AsyncIoContext& io) {
    auto made = std::make_shared<Desk>(io, fd, name, flow);
    desk = made.get();
    return made;
  });
  auto slot = post<bool>([](Desk& at) { return at.join(); });
  if (!slot->wait(connect_limit)) throw Error(Code::failed, name + " does not answer");
  slot->take();
}

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
  if (auto failure = inbox.failure()) throw Error(*failure);
  auto remote = slot->take();
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
  auto line = std::make_unique<Line>(impl_->flow, *impl_->loop, *impl_->desk, impl_, id, inbox);
  auto remote = impl_->begin(id, plan, request, *inbox);
  remote.line = std::move(line);
  remote.inbox = inbox;
  return make_remote(*request.plan, std::move(remote));
}

std::vector<WorkerInfo> Cluster::workers() {
  return impl_->call<std::vector<WorkerInfo>>([](Desk& at) { return at.workers(); });
}

JobReply Cluster::ask(const JobCall& call) {
  return impl_->call<JobReply>([&](Desk& at) { return at.ask(call); });
}

bool Cluster::lost() const { return impl_->flow->closed(); }

}  // namespace sluice
