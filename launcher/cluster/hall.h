// SPDX-License-Identifier: Apache-2.0
// What the coordinator holds: who is connected, and the runs. All of it lives on one KJ loop.
//
//   Door --socket--> Hall: a WorkerPeer or a ClientPeer --start--> ClusterRun --Share a process--> workers
//
// Thread rule: the loop's thread, but for Roll.
#pragma once
#include <condition_variable>
#include <deque>
#include <list>

#include "launcher/cluster/deal.h"
#include "launcher/cluster/handshake.h"
#include "launcher/cluster/rpc.h"

namespace sluice {

class Hall;

// The workers, for those who ask from other threads.
// Thread rule: any thread.
class Roll {
 public:
  void set(std::vector<WorkerInfo> workers);
  std::vector<WorkerInfo> get();
  bool wait_for(int workers, std::chrono::milliseconds timeout);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WorkerInfo> workers_;
};

struct WorkerPeer {
  WorkerPeer(kj::AsyncIoContext& io, int fd, capnp::Capability::Client gate) : link(io, fd, kj::mv(gate)) {}
  WorkerInfo info;
  Link link;
  kj::Maybe<wire::Worker::Client> worker;  // set: it has joined
  kj::Promise<void> watch = nullptr;       // over the link
};

struct ClientPeer {
  ClientPeer(kj::AsyncIoContext& io, int fd, capnp::Capability::Client gate) : link(io, fd, kj::mv(gate)) {}
  Link link;
  kj::Maybe<wire::Caller::Client> caller;  // set: it has joined
  kj::Promise<void> watch = nullptr;
};

// One run, from its plan's bytes to the end of the last worker's part.
//   plan, plan... -> begin: deal, set up, prepare, connect -> commands to and fro -> end
// Invariants: the client is told one failure, the first of the best kind (Weight); what follows from it is not told.
// Once a run has ended or failed, its workers are told to end their parts.
class ClusterRun : public std::enable_shared_from_this<ClusterRun>, private kj::TaskSet::ErrorHandler {
 public:
  // How much a failure explains. Who sees only consequences waits a little for who knows more.
  enum Weight { none, consequence, loss, explained_loss, cause };

  ClusterRun(Hall& hall, uint64_t id, uint64_t client, Request request, wire::Events::Client events);

  void add_plan(capnp::Data::Reader bytes);
  kj::Promise<void> begin(wire::Started::Builder started);
  kj::Promise<void> run(wire::Run::RunParams::Reader params, wire::Run::RunResults::Builder results);
  kj::Promise<void> end();  // resolves when the parts are gone, or given up
  void fail(Weight weight, const Error& error);
  bool try_deal();  // false: it goes on waiting

  // What workers say and what becomes of them.
  kj::Promise<void> tell(int process, wire::Event::Reader event);
  void worker_lost(int number, const std::string& how, bool explained);
  void worker_ended(const std::string& host, int64_t pid, const std::string& how);

  uint64_t client() const { return client_; }
  bool holds(int number) const;
  int ranks_on(int number) const;  // 0: none

 private:
  struct Member {
    WorkerInfo worker;
    int first_rank = 0, ranks = 0;
    kj::Maybe<wire::Share::Client> share;
    std::optional<Addresses> addresses;
    bool waited_for = false;
    bool over = false;  // its part is gone
  };
  struct Answer {  // of a stage
    std::optional<Failure> failure;
    int64_t rows = 0;
  };

  void taskFailed(kj::Exception&&) override {}
  kj::Promise<void> dealt();
  kj::Promise<void> set_up_all();
  kj::Promise<void> set_up(size_t process);
  kj::Promise<void> send_plan(size_t process, size_t offset);
  kj::Promise<void> prepare_all();
  kj::Promise<void> connect_all();
  kj::Promise<void> stage(const std::string& name, const std::function<kj::Promise<void>(size_t process)>& each);
  kj::Promise<void> tell_missing();
  kj::Promise<void> end_part(size_t process);
  kj::Promise<void> end_parts();
  bool is_consequence(const std::optional<Failure>& failure);  // then it is weighed as one
  void check(const std::optional<Failure>& failure, size_t process);
  void decide();
  void notice(const std::string& text);
  std::string text_of_member(const Member& member) const;

  Hall& hall_;
  uint64_t id_, client_;
  Request request_;
  wire::Events::Client events_;
  std::array<uint8_t, 32> key_{};
  std::vector<kj::byte> plan_;
  std::deque<Member> members_;  // by process
  std::string stage_;           // that begin() is at; "": over
  int64_t rows_ = 0;
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> seated_;  // while it waits for devices

  Weight weight_ = none;  // of the best failure yet
  std::optional<Error> error_;
  uint64_t holds_ = 0;    // how often the decision was put off
  bool decided_ = false;  // what error_ says is told
  kj::Own<kj::PromiseFulfiller<void>> decide_;
  kj::ForkedPromise<void> when_decided_ = nullptr;
  kj::Maybe<kj::ForkedPromise<void>> parts_ended_;  // set: they are told to
  kj::TaskSet tasks_;
};

class Hall : private kj::TaskSet::ErrorHandler {
 public:
  Hall(kj::AsyncIoContext& io, const CoordinatorOptions& options, std::shared_ptr<Roll> roll);
  ~Hall();

  void admit(int fd, Role role);
  kj::Promise<void> close();  // dismisses all
  void cancel_runs(const Error& error);
  void worker_ended(const std::string& host, int64_t pid, const std::string& how);

  // For those at the gates and for runs.
  void worker_joined(uint64_t peer, WorkerInfo info, wire::Worker::Client worker);
  void worker_left(uint64_t peer);
  void client_joined(uint64_t peer, wire::Caller::Client caller);
  std::shared_ptr<ClusterRun> start(uint64_t client, Request request, wire::Events::Client events, uint64_t& id);
  void forget(uint64_t run);
  void end_later(uint64_t run);
  void dismiss(int number, const std::string& why);  // a worker that does not obey
  void seats_changed();

  std::vector<Seat> seats_for(uint64_t client) const;
  std::list<uint64_t>& queue() { return queue_; }
  WorkerPeer* worker(int number);
  std::vector<WorkerInfo> workers() const;
  int workers_on(const std::string& host) const;
  const CoordinatorOptions& options() const { return options_; }
  kj::Timer& timer() { return io_.provider->getTimer(); }
  void event(const ClusterEvent& event) const;

 private:
  void taskFailed(kj::Exception&&) override {}
  void remove_worker(uint64_t peer, ClusterEvent::Kind kind, const std::string& how, bool explained);
  void remove_client(uint64_t peer);
  std::shared_ptr<ClusterRun> run(uint64_t id) const;
  void publish();
  uint64_t peer_of(int number) const;

  kj::AsyncIoContext& io_;
  CoordinatorOptions options_;
  std::shared_ptr<Roll> roll_;
  uint64_t peers_made_ = 0;
  int workers_made_ = 0;
  bool closing_ = false;
  std::map<uint64_t, std::shared_ptr<ClusterRun>> runs_;
  std::list<uint64_t> queue_;  // runs that wait for devices, the first first
  std::map<uint64_t, kj::Own<WorkerPeer>> workers_;
  std::map<uint64_t, kj::Own<ClientPeer>> clients_;
  kj::TaskSet tasks_;
};

}  // namespace sluice
