// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/share.h"

#include <algorithm>
#include <deque>

#include "launcher/cluster/interface.h"
#include "launcher/cluster/share_facts.h"
#include "launcher/session.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

}  // namespace

struct Share::Impl {
  using Task = std::function<void()>;

  Setup setup;
  std::string listen;
  Tell tell;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;                              // guarded by mutex, as are the following
  Floor* running = nullptr;                            // while the thread may wait in it
  bool pumping = false, ending = false, gone = false;  // gone: floor and transports are no more
  std::optional<Error> lost;                           // a transport lost a process before the floor was there
  std::vector<std::function<void()>> when_gone;

  // Of the thread:
  std::vector<std::byte> plan_bytes;
  Plan plan;
  std::optional<Tables> tables;
  std::shared_ptr<ProcessTransport> shm, ucx;
  std::unique_ptr<Floor> floor;
  Assembly assembly;
  HostArray part;  // that is being read, piece by piece
  std::string part_name;
  bool failed = false;    // told already
  bool crossing = false;  // in a step that fails only when others are not reached
  std::thread thread;

  Impl(Setup s, std::string l, Tell t) : setup(std::move(s)), listen(std::move(l)), tell(std::move(t)) {
    thread = std::thread([this] { main(); });
  }

  // ---- the thread

  void main() {
    while (auto task = next()) task();
    {
      std::lock_guard lock(mutex);
      running = nullptr;
    }
    floor.reset();
    for (auto* transport : {&shm, &ucx})
      if (*transport) (*transport)->close(), transport->reset();
    plan = {}, part = {}, plan_bytes = {};
    tables.reset();
    std::unique_lock lock(mutex);
    gone = true;
    auto tell_them = std::exchange(when_gone, {});
    lock.unlock();
    for (auto& done : tell_them) done();
  }

  Task next() {
    std::unique_lock lock(mutex);
    while (true) {
      // What waits when the end comes is answered: its floor throws.
      if (!tasks.empty()) {
        Task task = std::move(tasks.front());
        tasks.pop_front();
        return task;
      }
      if (ending) return nullptr;
      if (!floor || failed) {
        changed.wait(lock);
        continue;
      }
      pumping = true;
      lock.unlock();
      pump(1h);
      lock.lock();
      pumping = false;
    }
  }

  // Hands on what the floor finishes; true: there was something.
  bool pump(std::chrono::milliseconds timeout) {
    try {
      auto result = floor->wait_step(timeout);
      if (result && setup.process_of_rank[0] == setup.process) send(*result);
      return result.has_value();
    } catch (const Error& error) {
      report(error);
    } catch (const std::exception& error) {
      report(Error(Code::failed, error.what()));
    }
    return false;
  }

  void send(const StepResult& result) {
    std::vector<Named> arrays;
    for (auto& [name, array] : result.outputs) arrays.push_back({name, &array});
    cut(arrays, [&](std::vector<Chunk> chunks, bool last) {
      tell({RunEvent::result, {}, {}, result.step, result.batch, std::move(chunks), last});
    });
  }

  void report(const Error& error) {
    failed = true;
    if (error.code() == Code::cancelled) return;  // by end(), or told by whoever cancelled it
    tell({.kind = RunEvent::failed, .failure = Failure{error}});
  }

  // Whether a call failed of its own accord, or because of what is told, or will be, by others or by report().
  void weigh(Failure& failure) {
    if (floor && !failed) pump(0ms);
    std::lock_guard lock(mutex);
    failure.consequence = std::exchange(crossing, false) || failed || lost;
  }

  // Runs on any thread of a transport: must only post.
  void on_lost(int process, const std::string& why) {
    std::lock_guard lock(mutex);
    if (ending) return;
    Failure failure{Error(Code::failed, why), process};
    tasks.push_back([this, failure] { tell({.kind = RunEvent::failed, .failure = failure}); });
    stop(Error(Code::cancelled, why));
  }

  // Under the mutex. The floor throws `why` from now on.
  void stop(const Error& why) {
    if (!lost) lost = why;
    if (running) running->fail(why);
    changed.notify_all();
  }

  void post(Task task) {
    std::unique_lock lock(mutex);
    if (gone) return lock.unlock(), task();
    tasks.push_back(std::move(task));
    changed.notify_all();
    if (pumping && running) running->interrupt();
  }

  void require_going_on() {
    std::lock_guard lock(mutex);
    if (lost) throw Error(*lost);
  }

  // ---- the steps to a floor

  void make_plan_here() {
    if (plan_bytes.size() != setup.request.plan_bytes) throw Error(Code::io, "the plan has not come whole");
    plan = decode(plan_bytes);
    plan_bytes = {};
    if (hash_of(plan) != setup.request.plan_hash)
      throw Error(Code::failed, "this worker reads another plan than the client made", {},
                  "install the same version of sluice on all machines");
    if (plan.ranks() != int(setup.process_of_rank.size()))
      throw Error(Code::io, "the plan has another number of ranks");
    tables.emplace(builtin_tables(same_plugins(setup.request)));
  }

  bool same_host(size_t process) const {
    return setup.host_of_process[process] == setup.host_of_process[size_t(setup.process)];
  }

  Addresses make_transports() {
    ProcessGroup group{.process = setup.process,
                       .processes = int(setup.host_of_process.size()),
                       .process_of_rank = setup.process_of_rank,
                       .run = setup.run,
                       .key = setup.key,
                       .on_lost = [this](int process, const std::string& why) { on_lost(process, why); },
                       .silence_ms_max = setup.silence_ms};
    size_t near = 0, processes = setup.host_of_process.size();
    for (size_t p = 0; p < processes; ++p) near += same_host(p);
    if (near > 1) shm = make_shm(group);
    if (near < processes) ucx = make_ucx(group, interface_of(listen));
    return {shm ? shm->address() : "", ucx ? ucx->address() : ""};
  }

  int64_t make_floor(const std::vector<Addresses>& all) {
    size_t processes = setup.host_of_process.size(), me = size_t(setup.process);
    if (all.size() != processes) throw Error(Code::io, "addresses are missing");
    Neighbours neighbours{setup.process, setup.process_of_rank, {}};
    std::vector<std::string> shm_addresses(processes), ucx_addresses(processes);
    for (size_t p = 0; p < processes; ++p) {
      bool near = same_host(p);
      if (p != me) (near ? shm_addresses : ucx_addresses)[p] = near ? all[p].shm : all[p].ucx;
      neighbours.to.push_back(p == me ? nullptr : near ? shm : ucx);
    }
    crossing = true;
    if (shm) shm->connect(shm_addresses);
    if (ucx) ucx->connect(ucx_addresses);
    crossing = false;
    if (processes == 1) neighbours = {};
    FloorTables parts{tables->ops, tables->moves, tables->kinds, tables->devices, tables->readers};
    floor = std::make_unique<Floor>(plan, parts, floor_options(plan, setup), std::move(neighbours));
    std::lock_guard lock(mutex);
    running = floor.get();
    if (lost) running->fail(*lost);
    return floor->rows();
  }

  // ---- commands

  Reply obey(Command& command) {
    require_going_on();
    if (!floor) throw Error(Code::failed, "the run has no floor yet");
    Reply reply;
    switch (command.kind) {
      case Command::set_part: set_part(command); break;
      case Command::part: reply.chunk = read_part(command); break;
      case Command::announce:
        crossing = true;
        floor->announce();
        crossing = false;
        break;
      case Command::set_step: floor->set_step(command.number); break;
      case Command::grant: floor->grant(command.number); break;
      case Command::feed: reply.extents = feed(command); break;
      case Command::feed_extent: floor->feed_extent(command.extents); break;
      case Command::drain: drain(); break;
      case Command::progress: reply.number = floor->steps_done(); break;
      case Command::stats: reply.stats = floor->stats(); break;
      case Command::kinds: break;
    }
    return reply;
  }

  bool is_here(int rank) const {
    return rank >= 0 && size_t(rank) < setup.process_of_rank.size() &&
           setup.process_of_rank[size_t(rank)] == setup.process;
  }

  std::optional<uint64_t> part_limit(const std::string& name, int rank) const {
    auto found = is_here(rank) ? part_of(plan, name, rank) : std::nullopt;
    if (!found) return std::nullopt;
    for (auto& reg : plan.registers)
      if (reg.variable == name && !reg.tensors.empty())
        return uint64_t(found->piece.numel() * bytes_of(plan.tensors.at(size_t(reg.tensors[0])).type.dtype));
    return std::nullopt;
  }

  void set_part(Command& command) {
    for (auto& chunk : command.chunks)
      assembly.add(std::move(chunk), [&](const std::string& name) {
        return name == command.name && !command.ranks.empty() ? part_limit(name, command.ranks[0]) : std::nullopt;
      });
    if (!command.last) return;
    auto arrays = assembly.take_all();
    for (auto& [name, array] : arrays)
      for (int rank : command.ranks) {
        if (!is_here(rank)) throw Error(Code::io, "a part came to the wrong worker");
        floor->set_part(name, rank, array);
      }
  }

  Chunk read_part(const Command& command) {
    if (command.ranks.size() != 1 || !is_here(command.ranks[0]))
      throw Error(Code::io, "a part was asked of the wrong worker");
    if (command.number == 0) part = floor->part(command.name, command.ranks[0]), part_name = command.name;
    size_t offset = size_t(command.number);
    if (part_name != command.name || offset > part.data.size()) throw Error(Code::io, "no such piece of a part");
    size_t bytes = std::min(chunk_bytes_max, part.data.size() - offset);
    auto from = part.data.begin() + std::ptrdiff_t(offset);
    Chunk chunk{command.name, part.dtype, part.dims, part.data.size(), offset, {from, from + std::ptrdiff_t(bytes)}};
    if (offset + bytes == part.data.size()) part = {}, part_name.clear();
    return chunk;
  }

  Extents feed(Command& command) {
    for (auto& chunk : command.chunks)
      assembly.add(std::move(chunk), [&](const std::string& name) { return input_limit(plan, name); });
    if (!command.last) return {};
    auto batch = assembly.take_all();
    Extents extents = floor->check_feed(batch);
    floor->feed(std::move(batch));
    return extents;
  }

  void drain() {
    while (true) {
      try {
        floor->drain();
        break;
      } catch (const Error& error) {
        // Or it was only interrupted, by a command that had come just before this one.
        std::lock_guard lock(mutex);
        if (error.code() != Code::cancelled || ending || lost) throw;
      }
    }
    while (pump(0ms)) {
    }
  }
};

namespace {

// Runs `f`; an exception becomes a failure.
template <class F>
std::optional<Failure> failure_of(F&& f) {
  try {
    f();
    return std::nullopt;
  } catch (const Error& error) {
    return Failure{error};
  } catch (const std::bad_alloc&) {
    return Failure{Error(Code::failed, "there is not enough memory")};
  } catch (const std::exception& error) {
    return Failure{Error(Code::failed, error.what())};
  }
}

}  // namespace

Share::Share(Setup setup, std::string listen, Tell tell)
    : impl_(std::make_unique<Impl>(std::move(setup), std::move(listen), std::move(tell))) {}

Share::~Share() {
  end([] {});
  impl_->thread.join();
}

void Share::add_plan(std::vector<std::byte> bytes) {
  impl_->post([impl = impl_.get(), bytes = std::move(bytes)] {
    auto& all = impl->plan_bytes;
    if (bytes.size() > impl->setup.request.plan_bytes - all.size()) return;  // then it is never whole
    all.insert(all.end(), bytes.begin(), bytes.end());
  });
}

void Share::prepare(std::function<void(Failed, Addresses)> done) {
  impl_->post([impl = impl_.get(), done = std::move(done)] {
    Addresses addresses;
    auto failure = failure_of([&] {
      impl->require_going_on();
      impl->make_plan_here();
      addresses = impl->make_transports();
    });
    done(std::move(failure), std::move(addresses));
  });
}

void Share::connect(std::vector<Addresses> all, std::function<void(Failed, int64_t rows)> done) {
  impl_->post([impl = impl_.get(), all = std::move(all), done = std::move(done)] {
    int64_t rows = 0;
    auto failure = failure_of([&] {
      impl->require_going_on();
      rows = impl->make_floor(all);
    });
    if (failure) impl->weigh(*failure);
    done(std::move(failure), rows);
  });
}

void Share::run(Command command, std::function<void(Reply)> done) {
  auto shared = std::make_shared<Command>(std::move(command));
  impl_->post([impl = impl_.get(), shared, done = std::move(done)] {
    Reply reply;
    auto failure = failure_of([&] { reply = impl->obey(*shared); });
    if (failure) impl->assembly = {}, impl->weigh(*failure);
    reply.failure = std::move(failure);
    done(std::move(reply));
  });
}

void Share::end(std::function<void()> done) {
  std::unique_lock lock(impl_->mutex);
  if (impl_->gone) return lock.unlock(), done();
  impl_->when_gone.push_back(std::move(done));
  impl_->ending = true;
  impl_->stop(Error(Code::cancelled, "the run was ended"));
}

}  // namespace sluice
