// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/hall.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace sluice {
namespace {

constexpr size_t runs_max_of_client = 64;

// What a worker may do.
class WorkerGateServer final : public wire::WorkerGate::Server {
 public:
  WorkerGateServer(Hall& hall, uint64_t peer) : hall_(hall), peer_(peer) {}
  kj::Promise<void> ping(PingContext) override { return kj::READY_NOW; }
  kj::Promise<void> join(JoinContext context) override {
    auto params = context.getParams();
    auto info = worker_of(params.getInfo());
    if (info.host.empty() || info.host.size() > 255 || !is_plain(info.host) || info.devices < 0) {
      put(context.getResults().initFailure(),
          {Error(Code::usage,
                 "a worker's host is a name of letters, digits and . : _ -, and its devices are 0 or more")});
      return kj::READY_NOW;
    }
    hall_.worker_joined(peer_, info, params.getWorker());
    return kj::READY_NOW;
  }
  kj::Promise<void> leave(LeaveContext) override {
    hall_.worker_left(peer_);
    return kj::READY_NOW;
  }

 private:
  Hall& hall_;
  uint64_t peer_;
};

class RunServer final : public wire::Run::Server {
 public:
  RunServer(Hall& hall, uint64_t id, std::shared_ptr<ClusterRun> run) : hall_(hall), id_(id), run_(std::move(run)) {}
  ~RunServer() noexcept(false) { hall_.end_later(id_); }

  kj::Promise<void> plan(PlanContext context) override {
    run_->add_plan(context.getParams().getData());
    return kj::READY_NOW;
  }
  kj::Promise<void> begin(BeginContext context) override { return run_->begin(context.getResults().initStarted()); }
  kj::Promise<void> run(RunContext context) override { return run_->run(context.getParams(), context.getResults()); }
  kj::Promise<void> end(EndContext) override { return run_->end(); }

 private:
  Hall& hall_;
  uint64_t id_;
  std::shared_ptr<ClusterRun> run_;
};

// What a client may do.
class ClientGateServer final : public wire::ClientGate::Server {
 public:
  ClientGateServer(Hall& hall, uint64_t peer) : hall_(hall), peer_(peer), jobs_(hall.options().store) {}
  kj::Promise<void> ping(PingContext) override { return kj::READY_NOW; }
  kj::Promise<void> join(JoinContext context) override {
    hall_.client_joined(peer_, context.getParams().getClient());
    context.getResults().setSilenceMs(hall_.options().silence_ms_max);
    return kj::READY_NOW;
  }
  kj::Promise<void> start(StartContext context) override {
    auto params = context.getParams();
    auto results = context.getResults();
    try {
      uint64_t id = 0;
      auto run = hall_.start(peer_, request_of(params.getRequest()), params.getEvents(), id);
      results.setRun(kj::heap<RunServer>(hall_, id, run));
    } catch (const Error& error) {
      put(results.initFailure(), {error});
    }
    return kj::READY_NOW;
  }
  kj::Promise<void> workers(WorkersContext context) override {
    auto all = hall_.workers();
    auto list = context.getResults().initWorkers(kj::uint(all.size()));
    for (kj::uint i = 0; i < list.size(); ++i) put(list[i], all[i]);
    return kj::READY_NOW;
  }
  kj::Promise<void> job(JobContext context) override {
    JobCall call = guarded([&] { return job_call_of(context.getParams().getCall()); });
    put(context.getResults().initReply(), jobs_.answer(call));
    return kj::READY_NOW;
  }

 private:
  Hall& hall_;
  uint64_t peer_;
  JobDesk jobs_;
};

}  // namespace

void Roll::set(std::vector<WorkerInfo> workers) {
  std::lock_guard lock(mutex_);
  workers_ = std::move(workers);
  changed_.notify_all();
}

std::vector<WorkerInfo> Roll::get() {
  std::lock_guard lock(mutex_);
  return workers_;
}

bool Roll::wait_for(int workers, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return int(workers_.size()) >= workers; });
}

Hall::Hall(kj::AsyncIoContext& io, const CoordinatorOptions& options, std::shared_ptr<Roll> roll)
    : io_(io), options_(options), roll_(std::move(roll)), tasks_(*this) {}

Hall::~Hall() {
  closing_ = true;
  clients_.clear();
  workers_.clear();
}

void Hall::admit(int fd, Role role) {
  uint64_t peer = ++peers_made_;
  if (role == Role::client) {
    clients_.emplace(peer, kj::heap<ClientPeer>(io_, fd, kj::heap<ClientGateServer>(*this, peer)));
  } else {
    workers_.emplace(peer, kj::heap<WorkerPeer>(io_, fd, kj::heap<WorkerGateServer>(*this, peer)));
  }
  // Until it joins there is nobody to ping.
  auto limit = timer().afterDelay(options_.silence_ms_max * kj::MILLISECONDS);
  tasks_.add(limit.then([this, peer, role] {
    auto worker = workers_.find(peer);
    auto client = clients_.find(peer);
    if (role == Role::worker && worker != workers_.end() && worker->second->worker == nullptr) workers_.erase(worker);
    if (role == Role::client && client != clients_.end() && client->second->caller == nullptr) clients_.erase(client);
  }));
}

void Hall::worker_joined(uint64_t peer, WorkerInfo info, wire::Worker::Client worker) {
  auto found = workers_.find(peer);
  if (found == workers_.end() || !(found->second->worker == nullptr)) return;
  info.number = workers_made_++;
  info.runs = 0;
  found->second->info = info;
  found->second->worker = kj::mv(worker);
  auto ping = [at = found->second.get()] { return KJ_ASSERT_NONNULL(at->worker).pingRequest().send().ignoreResult(); };
  auto lost = found->second->link.lost(ping, options_.silence_ms_max).then([this, peer](std::string why) {
    remove_worker(peer, ClusterEvent::lost, why, false);
  });
  found->second->watch = lost.eagerlyEvaluate([](kj::Exception&&) {});
  event({ClusterEvent::joined, info.number, info.host, info.pid, ""});
  seats_changed();
}

void Hall::worker_left(uint64_t peer) {
  tasks_.add(kj::evalLater([this, peer] { remove_worker(peer, ClusterEvent::left, "has left", true); }));
}

void Hall::remove_worker(uint64_t peer, ClusterEvent::Kind kind, const std::string& how, bool explained) {
  auto found = workers_.find(peer);
  if (found == workers_.end() || closing_) return;
  auto gone = kj::mv(found->second);
  workers_.erase(found);
  auto& info = gone->info;
  event({kind, info.number, info.host, info.pid, how});
  for (auto& [id, run] : std::map(runs_)) run->worker_lost(info.number, how, explained);
  // Not from within a promise of its own.
  tasks_.add(kj::evalLater([gone = kj::mv(gone)] {}));
  seats_changed();
}

void Hall::worker_ended(const std::string& host, int64_t pid, const std::string& how) {
  for (auto& [id, run] : std::map(runs_)) run->worker_ended(host, pid, how);
  for (auto& [peer, worker] : workers_)
    if (worker->info.host == host && worker->info.pid == pid && !(worker->worker == nullptr))
      return remove_worker(peer, ClusterEvent::lost, how, true);
}

void Hall::dismiss(int number, const std::string& why) {
  tasks_.add(kj::evalLater([this, number, why] { remove_worker(peer_of(number), ClusterEvent::lost, why, true); }));
}

void Hall::client_joined(uint64_t peer, wire::Caller::Client caller) {
  auto found = clients_.find(peer);
  if (found == clients_.end() || !(found->second->caller == nullptr)) return;
  found->second->caller = kj::mv(caller);
  auto ping = [at = found->second.get()] { return KJ_ASSERT_NONNULL(at->caller).pingRequest().send().ignoreResult(); };
  auto lost =
      found->second->link.lost(ping, options_.silence_ms_max).then([this, peer](std::string) { remove_client(peer); });
  found->second->watch = lost.eagerlyEvaluate([](kj::Exception&&) {});
}

void Hall::remove_client(uint64_t peer) {
  auto found = clients_.find(peer);
  if (found == clients_.end() || closing_) return;
  for (auto& [id, run] : runs_)
    if (run->client() == peer) end_later(id);
  auto gone = kj::mv(found->second);
  clients_.erase(found);
  tasks_.add(kj::evalLater([gone = kj::mv(gone)] {}));
}

std::shared_ptr<ClusterRun> Hall::start(uint64_t client, Request request, wire::Events::Client events, uint64_t& id) {
  size_t runs = 0;
  for (auto& [other, run] : runs_) runs += run->client() == client;
  if (runs >= runs_max_of_client)
    throw Error(Code::value, fmt::format("{} runs are going on already", runs), {}, "end some first");
  random_bytes({reinterpret_cast<uint8_t*>(&id), sizeof id});
  auto run = std::make_shared<ClusterRun>(*this, id, client, std::move(request), kj::mv(events));
  runs_.emplace(id, run);
  return run;
}

std::shared_ptr<ClusterRun> Hall::run(uint64_t id) const {
  auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : found->second;
}

void Hall::end_later(uint64_t id) {
  if (closing_) return;
  tasks_.add(kj::evalLater([this, id]() -> kj::Promise<void> {
    auto ending = run(id);
    return ending ? ending->end() : kj::Promise<void>(kj::READY_NOW);
  }));
}

void Hall::forget(uint64_t id) {
  queue_.remove(id);
  auto found = runs_.find(id);
  if (found == runs_.end()) return;
  tasks_.add(kj::evalLater([gone = std::move(found->second)] {}));
  runs_.erase(found);
  seats_changed();
}

void Hall::seats_changed() {
  while (!queue_.empty()) {
    auto first = run(queue_.front());
    if (first && !first->try_deal()) break;
    queue_.pop_front();
  }
  publish();
}

// Devices that a client's runs share count once.
std::vector<Seat> Hall::seats_for(uint64_t client) const {
  std::vector<Seat> seats;
  for (auto& info : workers()) {
    std::map<uint64_t, int> most;
    for (auto& [id, run] : runs_)
      if (run->client() != client) most[run->client()] = std::max(most[run->client()], run->ranks_on(info.number));
    int taken = 0;
    for (auto& [other, ranks] : most) taken += ranks;
    seats.push_back({info.number, info.host, info.devices, taken, info.runs});
  }
  return seats;
}

WorkerPeer* Hall::worker(int number) {
  auto found = workers_.find(peer_of(number));
  return found == workers_.end() ? nullptr : found->second.get();
}

uint64_t Hall::peer_of(int number) const {
  for (auto& [peer, worker] : workers_)
    if (worker->info.number == number && !(worker->worker == nullptr)) return peer;
  return 0;
}

std::vector<WorkerInfo> Hall::workers() const {
  std::vector<WorkerInfo> all;
  for (auto& [peer, worker] : workers_) {
    if (worker->worker == nullptr) continue;
    all.push_back(worker->info);
    for (auto& [id, run] : runs_) {
      all.back().runs += run->holds(worker->info.number);
      all.back().ranks += run->ranks_on(worker->info.number);
    }
  }
  return all;
}

int Hall::workers_on(const std::string& host) const {
  int count = 0;
  for (auto& info : workers()) count += info.host == host;
  return count;
}

void Hall::publish() { roll_->set(workers()); }

void Hall::event(const ClusterEvent& event) const {
  if (options_.on_event) options_.on_event(event);
}

void Hall::cancel_runs(const Error& error) {
  for (auto& [id, run] : std::map(runs_)) run->fail(ClusterRun::cause, error);
}

kj::Promise<void> Hall::close() {
  cancel_runs(Error(Code::failed, "the coordinator has ended"));
  closing_ = true;
  kj::Vector<kj::Promise<void>> all;
  for (auto& [peer, worker] : workers_)
    KJ_IF_MAYBE (at, worker->worker) {
      all.add(at->dismissRequest().send().ignoreResult().catch_([](kj::Exception&&) {}));
    }
  // Clients have the last word on its way; a call to and fro says that it has arrived.
  for (auto& [peer, client] : clients_)
    KJ_IF_MAYBE (at, client->caller) {
      all.add(at->pingRequest().send().ignoreResult().catch_([](kj::Exception&&) {}));
    }
  return kj::joinPromises(all.releaseAsArray()).exclusiveJoin(timer().afterDelay(1 * kj::SECONDS));
}

}  // namespace sluice
