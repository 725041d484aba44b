// SPDX-License-Identifier: Apache-2.0
// A client's connection: what of it lives on its loop's thread, and how others reach that.
// Thread rule: as each class says.
#pragma once
#include <optional>

#include "launcher/cluster/remote.h"
#include "launcher/cluster/rpc.h"

namespace sluice {

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

// What comes of a call: a value, or what the coordinator refused it with.
template <class T>
struct Outcome {
  std::optional<T> value;
  std::optional<Error> error;
};
template <class T>
using Coming = kj::Promise<std::shared_ptr<Outcome<T>>>;
template <class T>
std::shared_ptr<Outcome<T>> outcome(std::optional<T> value, const std::optional<Failure>& failure = {}) {
  auto made = std::make_shared<Outcome<T>>();
  if (failure)
    made->error = failure->error;
  else
    made->value = std::move(value);
  return made;
}

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

  // Calls `make(*this)`, a promise of its outcome, and puts into the slot what comes of it.
  template <class T, class Make>
  void answer(const std::shared_ptr<Slot<T>>& slot, Make&& make) {
    try {
      tasks_.add(make(*this).then([slot](auto&& come) { slot->set(std::move(come->value), come->error); },
                                  [this, slot](kj::Exception&& why) { slot->set({}, error_of(why)); }));
    } catch (const Error& error) {
      slot->set({}, error);
    } catch (const kj::Exception& why) {
      slot->set({}, error_of(why));
    }
  }

  Coming<bool> join();
  Coming<std::vector<WorkerInfo>> workers();
  Coming<uint64_t> start(const Request& request, const std::shared_ptr<Inbox>& inbox);
  Coming<bool> plan(uint64_t run, const std::vector<std::byte>& bytes, size_t offset);
  Coming<RemoteRun> begin(uint64_t run);
  Coming<bool> end(uint64_t run);
  void send(uint64_t run, int to, int but, const Command& command, std::function<void(RunLine::Replies)> done);
  Coming<JobReply> ask(const JobCall& call);  // about submitted jobs

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

struct Cluster::Impl : std::enable_shared_from_this<Cluster::Impl> {
  std::shared_ptr<Flow> flow = std::make_shared<Flow>();
  Desk* desk = nullptr;  // lives and dies with the loop's thread
  std::unique_ptr<Loop> loop;

  explicit Impl(const Credentials& credentials);
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
    while (!slot->wait(std::chrono::hours(1))) {
    }
    return slot->take();
  }

  RemoteRun begin(uint64_t run, const std::vector<std::byte>& plan, const RunRequest& request, Inbox& inbox);
};

}  // namespace sluice
