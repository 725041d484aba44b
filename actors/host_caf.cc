// SPDX-License-Identifier: Apache-2.0
// CAF as the host (0.17.6; this is the one file that knows its API). Our coordinator module replaces CAF's scheduler:
//
//   worker 0 (control): the supervisor, CAF's own actors   worker 1..n: each the home of some streams
//
// A stream is one caf::resumable bound to its home. Only signals pass through CAF's mailboxes: payloads stay in our
// own queues, guarded by our own locks.
#include <algorithm>
#include <caf/all.hpp>
#include <caf/detail/thread_safe_actor_clock.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>
#include <condition_variable>
#include <deque>
#include <thread>

#include "actors/stream.h"

namespace sluice {
namespace {

constexpr int firings_a_turn = 16;
constexpr int spins_max = 20'000;  // about 100 us, where cores are free

class Worker;
thread_local Worker* this_worker = nullptr;

// One thread and the resumables that are bound to it.
class Worker final : public caf::execution_unit {
 public:
  Worker(caf::actor_system& system, size_t throughput, bool spin, World& world)
      : caf::execution_unit(&system), throughput_(throughput), spin_(spin), world_(world) {}

  void start(caf::actor_system& system) {
    thread_ = std::thread([this, &system] {
      CAF_SET_LOGGER_SYS(&system);
      static_cast<void>(system);
      this_worker = this;
      run();
    });
  }
  void join() { thread_.join(); }
  bool spins() const { return spin_; }
  // Looks until `found` or for some time, also at what other processes have sent: those need not wake anybody then.
  template <class Found>
  void spin(Found&& found) {
    world_.spin_transports(true);
    for (int spins = spins_max; spins > 0 && !found(); --spins)
      if (!world_.poll_transports()) __builtin_ia32_pause();
    world_.spin_transports(false);
  }
  bool has_more() const { return !local_.empty() || any_.load(std::memory_order_acquire); }  // its own thread's

  // From any thread: what we run ourselves needs no lock.
  void exec_later(caf::resumable* job) override {
    if (this_worker == this)
      local_.push_back(job);
    else
      enqueue(job);
  }

  void enqueue(caf::resumable* job) {
    bool wake = false;
    {
      std::lock_guard lock(mutex_);
      inbox_.push_back(job);
      any_.store(true, std::memory_order_release);
      wake = sleeping_;
    }
    if (wake) changed_.notify_one();
  }

 private:
  void run() {
    while (true) {
      if (local_.empty() || any_.load(std::memory_order_acquire)) fetch();
      caf::resumable* job = local_.front();
      local_.pop_front();
      switch (job->resume(this, throughput_)) {
        case caf::resumable::resume_later: local_.push_back(job); break;
        case caf::resumable::done:
        case caf::resumable::awaiting_message: let_go(job); break;
        case caf::resumable::shutdown_execution_unit: {
          caf::intrusive_ptr_release(job);
          for (auto* kept : kept_) caf::intrusive_ptr_release(kept);
          return;
        }
      }
    }
  }

  // CAF counts references by atomics inside a library that sanitizers do not see. An actor that ran here is kept until
  // the worker ends, so it dies on the thread that it lived on.
  void let_go(caf::resumable* job) {
    bool actor = job->subtype() == caf::resumable::scheduled_actor;
    if (actor && std::find(kept_.begin(), kept_.end(), job) == kept_.end()) return kept_.push_back(job);
    caf::intrusive_ptr_release(job);
  }

  void fetch() {
    if (spin_ && local_.empty()) spin([this] { return any_.load(std::memory_order_acquire); });
    std::unique_lock lock(mutex_);
    if (local_.empty()) {
      sleeping_ = true;
      changed_.wait(lock, [&] { return !inbox_.empty(); });
      sleeping_ = false;
    }
    for (auto* job : inbox_) local_.push_back(job);
    inbox_.clear();
    any_.store(false, std::memory_order_relaxed);
  }

  const size_t throughput_;
  const bool spin_;
  World& world_;
  std::deque<caf::resumable*> local_;  // the worker's own
  std::vector<caf::resumable*> kept_;  // the worker's own
  std::mutex mutex_;                   // guards inbox_ and sleeping_
  std::condition_variable changed_;
  std::vector<caf::resumable*> inbox_;
  std::atomic<bool> any_{false};
  bool sleeping_ = false;
  std::thread thread_;
};

// Ends the worker that resumes it.
class Shutdown final : public caf::resumable, public caf::ref_counted {
 public:
  resume_result resume(caf::execution_unit*, size_t) override { return shutdown_execution_unit; }
  void intrusive_ptr_add_ref_impl() override { ref(); }
  void intrusive_ptr_release_impl() override { deref(); }
};

// Our options travel in CAF's own config object, as it makes its modules without arguments of ours.
struct HostConfig : caf::actor_system_config {
  bool spin = false;
  World* world = nullptr;
};

// Scheduler module, without CAF's printer actor: nothing here prints through CAF. What is not bound to a worker (the
// supervisor, CAF's own actors) runs on worker 0.
class Coordinator final : public caf::scheduler::abstract_coordinator {
 public:
  explicit Coordinator(caf::actor_system& system)
      : abstract_coordinator(system), config_(static_cast<const HostConfig&>(system.config())) {}
  static caf::actor_system::module* make(caf::actor_system& system, caf::detail::type_list<>) {
    return new Coordinator(system);
  }

  void start() override {
    for (size_t w = 0; w < num_workers(); ++w)
      workers_.push_back(std::make_unique<Worker>(system(), max_throughput(), config_.spin && w > 0, *config_.world));
    for (auto& worker : workers_) worker->start(system());
    timer_ = std::thread([this] {
      CAF_SET_LOGGER_SYS(&system());
      clock_.run_dispatch_loop();
    });
  }

  void stop() override {
    auto shutdown = caf::make_counted<Shutdown>();
    for (auto& worker : workers_) {
      shutdown->ref();
      worker->enqueue(shutdown.get());
    }
    for (auto& worker : workers_) worker->join();
    clock_.cancel_dispatch_loop();
    timer_.join();
  }

  void enqueue(caf::resumable* job) override { workers_[0]->enqueue(job); }
  caf::actor_clock& clock() noexcept override { return clock_; }
  Worker& worker(size_t index) { return *workers_[index]; }

 private:
  const HostConfig& config_;
  std::vector<std::unique_ptr<Worker>> workers_;
  caf::detail::thread_safe_actor_clock clock_;
  std::thread timer_;
};

class StreamJob final : public caf::resumable, public caf::ref_counted {
 public:
  StreamJob(Stream& stream, Worker& home) : stream_(stream), home_(home) {}
  resume_result resume(caf::execution_unit*, size_t) override {
    if (stream_.turn(firings_a_turn)) return resume_later;
    if (home_.spins() && mail_comes()) return resume_later;
    return stream_.rest() ? resume_later : awaiting_message;
  }
  void schedule() {
    ref();
    home_.exec_later(this);
  }
  void intrusive_ptr_add_ref_impl() override { ref(); }
  void intrusive_ptr_release_impl() override { deref(); }

 private:
  // Spins on the stream's own inbox while its worker has nothing else: a message then needs no wake-up.
  bool mail_comes() {
    stream_.tell_if_caught_up();
    home_.spin([this] { return home_.has_more() || stream_.has_mail(); });
    return stream_.has_mail();
  }

  Stream& stream_;
  Worker& home_;
};

// The signal carries nothing: failures wait in World::failures.
using failed_atom = caf::atom_constant<caf::atom("failed")>;

caf::behavior supervisor(caf::event_based_actor* self, World* world) {
  self->set_default_handler(caf::drop);
  return {[world](failed_atom) { world->decide_failure(); }};
}

// Sends the supervisor a message from worker 0, where the supervisor runs: between threads lie our own queues only.
class Signal final : public caf::resumable, public caf::ref_counted {
 public:
  Signal(caf::actor to, bool exit) : to_(std::move(to)), exit_(exit) {}
  resume_result resume(caf::execution_unit*, size_t) override {
    if (exit_)
      caf::anon_send_exit(to_, caf::exit_reason::user_shutdown);
    else
      caf::anon_send(to_, failed_atom::value);
    to_ = nullptr;
    return done;
  }
  void intrusive_ptr_add_ref_impl() override { ref(); }
  void intrusive_ptr_release_impl() override { deref(); }

 private:
  caf::actor to_;
  const bool exit_;
};

class CafHost final : public Host {
 public:
  CafHost(World& world, int workers, bool spin) : workers_(workers) {
    config_.set("scheduler.max-threads", size_t(workers) + 1);
    config_.set("scheduler.max-throughput", size_t(32));
    config_.set("logger.verbosity", caf::atom("quiet"));
    config_.spin = spin;
    config_.world = &world;
    config_.load<Coordinator>();
    system_ = std::make_unique<caf::actor_system>(config_);
    coordinator_ = &static_cast<Coordinator&>(system_->scheduler());
    supervisor_ = system_->spawn(supervisor, &world);
  }
  ~CafHost() override { stop(); }

  void start(std::vector<Stream*> streams) override {
    assign(streams);
    for (size_t s = 0; s < streams.size(); ++s) {
      jobs_.push_back(caf::make_counted<StreamJob>(*streams[s], coordinator_->worker(homes_[s])));
      streams[s]->hosted = jobs_.back().get();
    }
  }

  void wake(Stream& stream) override { static_cast<StreamJob*>(stream.hosted)->schedule(); }
  // A device's thread may still fail while we stop.
  void report_failure() override {
    std::lock_guard lock(mutex_);
    if (supervisor_) signal(supervisor_, false);
  }

  void stop() override {
    if (!system_) return;
    {
      std::lock_guard lock(mutex_);
      signal(std::exchange(supervisor_, nullptr), true);
    }
    system_.reset();  // stops and joins the workers
    jobs_.clear();
  }

 private:
  void signal(caf::actor to, bool exit) {
    coordinator_->worker(0).enqueue(
        caf::make_counted<Signal>(std::move(to), exit).detach());  // the worker's from here on
  }

  // A worker a stream while they suffice; else all streams of a rank share one, so that its tokens stay on a core, and
  // ranks are dealt out in turn.
  void assign(const std::vector<Stream*>& streams) {
    auto workers = size_t(workers_);
    for (size_t s = 0; s < streams.size(); ++s)
      homes_.push_back(1 + (streams.size() <= workers ? s : size_t(streams[s]->rank)) % workers);
    bool one_rank = std::all_of(streams.begin(), streams.end(), [&](Stream* s) { return s->rank == streams[0]->rank; });
    if (streams.size() > workers && one_rank)
      for (size_t s = 0; s < streams.size(); ++s) homes_[s] = 1 + s % workers;
  }

  int workers_;
  HostConfig config_;
  std::unique_ptr<caf::actor_system> system_;
  Coordinator* coordinator_ = nullptr;
  std::mutex mutex_;
  caf::actor supervisor_;  // guarded by mutex_
  std::vector<caf::intrusive_ptr<StreamJob>> jobs_;
  std::vector<size_t> homes_;  // per stream: its worker
};

}  // namespace

std::unique_ptr<Host> make_caf_host(World& world, int workers, bool spin) {
  return std::make_unique<CafHost>(world, workers, spin);
}

}  // namespace sluice
