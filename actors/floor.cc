// SPDX-License-Identifier: Apache-2.0
#include "actors/floor.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "actors/lower.h"
#include "actors/poller.h"
#include "actors/variables.h"
#include "actors/watchdog.h"

namespace sluice {
namespace {

int free_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace

struct Floor::Impl {
  Plan plan;
  FloorOptions options;
  FloorTables tables;
  World world{plan, options};
  std::unique_ptr<Poller> poller;
  std::unique_ptr<Lowered> lowered;
  std::unique_ptr<Host> host;
  std::unique_ptr<Watchdog> watchdog;
  int64_t granted = 0, fed = 0;
  std::map<std::string, LogicalType> inputs;

  Impl(const Plan& p, const FloorTables& t, const FloorOptions& o, Neighbours n) : plan(p), options(o), tables(t) {
    check(n.process_of_rank.empty() || n.process_of_rank.size() == size_t(plan.ranks()),
          "the neighbours are those of another plan");
    world.neighbours = std::move(n);
    for (auto& to : world.neighbours.to)
      if (to && std::find(world.polled.begin(), world.polled.end(), to.get()) == world.polled.end())
        world.polled.push_back(to.get());
    world.steps.batch = plan.batch_bound;
    for (auto& actor : plan.actors)
      if (actor.kind == "feed") add_inputs(actor);
    world.steps.feeds = !inputs.empty();
    world.inproc = make_inproc();
    lowered = lower(world, tables);
    if (world.async && options.inline_drive)
      throw Error(Code::value, "device '" + plan.device + "' is asynchronous: the client's thread cannot drive it");
    if (world.async) poller = std::make_unique<Poller>();
    world.poller = poller.get();
    start();
  }

  ~Impl() {
    world.stopped.store(true);
    watchdog.reset();
    if (poller) poller->stop();  // its actions wake streams
    // What other processes send wakes streams too, so it ends before the threads that host them.
    for (auto* transport : world.polled) transport->close();
    if (host) host->stop();
    if (world.inproc) world.inproc->close();
    lowered.reset();
  }

  void add_inputs(const PlanActor& actor) {
    if (actor.tensors.size() != actor.names.size()) return;  // refused by the lowering
    for (size_t i = 0; i < actor.tensors.size(); ++i)
      if (int id = actor.tensors[i]; id >= 0 && size_t(id) < plan.tensors.size()) {
        auto& type = inputs[actor.names[i]] = plan.tensors[size_t(id)].type;
        for (auto& dim : type.shape)  // the client feeds whole batches; the plan's dims hold a micro-batch
          if (dim.sym == batch_sym) dim.size = dim.granule * plan.batch_bound;
      }
  }

  void start() {
    int workers = options.workers > 0 ? options.workers : std::min(int(lowered->streams.size()), free_cores());
    host = options.inline_drive ? make_inline_host(world) : make_caf_host(world, std::max(1, workers), options.spin);
    world.host = host.get();
    std::vector<Stream*> streams;
    for (auto& stream : lowered->streams) streams.push_back(stream.get());
    host->start(streams);
    if (world.polled.empty()) announce();
    if (!options.inline_drive)
      watchdog = std::make_unique<Watchdog>(world, *lowered, [this] { return world.opened.load() > steps_done(); });
  }

  // Initial tokens of readers on other ranks travel as any slot does; those on this rank are in the ports already. They
  // stay with the readers, so later only what they hold is sent again, as are constants.
  void announce() {
    for (auto& [key, reg] : lowered->registers)
      for (auto& tap : reg->taps)
        for (int slot = 0; slot < reg->plan->initial && tap.remote; ++slot)
          announced ? refresh(*reg, tap, uint32_t(slot)) : first_send(*reg, tap, uint32_t(slot));
    for (auto& constant : lowered->constants) refresh(*constant.reg, constant.tap, 0);
    announced = true;
  }
  bool announced = false;

  // A token that was published last may still be on its way out of the slot's own memory. What is sent again on its
  // wire is acknowledged after it, so then the memory may change.
  void settle_wires(const std::string& variable, int rank) {
    for (auto& [key, reg] : lowered->registers)
      if (announced && reg->rank == rank && reg->plan->variable == variable)
        for (auto& tap : reg->taps)
          if (tap.outlet) refresh(*reg, tap, 0);
  }

  void first_send(Register& reg, const Tap& tap, uint32_t slot) {
    if (!tap.outlet)
      return tap.transport->send(tap.wire, slot, reg.headers[slot], reg.slot(slot), size_t(reg.plan->bytes), nullptr);
    auto stream = lowered->sites[size_t(reg.rank)]->device->stream();
    tap.outlet->send(*stream, reg, slot, world.poller);
    stream->synchronize();
  }

  void refresh(Register& reg, const Tap& tap, uint32_t slot) {
    if (!tap.outlet) {  // the reader sees this memory; a constant's it does not know yet
      if (!reg.producer)
        tap.transport->refresh(tap.wire, slot, reg.headers[slot], reg.slot(slot), size_t(reg.plan->bytes));
      return;
    }
    auto stream = lowered->sites[size_t(reg.rank)]->device->stream();
    tap.outlet->refresh(*stream, reg, slot);
  }

  void open_gates() {
    int64_t target = world.steps.feeds ? std::min(granted, fed) : granted, more = target - world.opened.load();
    if (more <= 0) return;
    world.opened.store(target);
    for (auto* actor : lowered->gated) actor->stream->post({Message::input, 0, uint32_t(more), actor});
  }

  int64_t steps_done() const {
    int64_t done = world.opened.load();
    for (auto& actor : lowered->actors)
      done = std::min(done, actor->fired.load(std::memory_order_acquire) / int64_t(actor->firings));
    return done;
  }

  void throw_failure() const {
    if (!world.stopped.load()) return;
    std::unique_lock lock(world.mutex);
    if (world.failure) throw Error(*world.failure);
  }

  // Waits until `done` holds, which changes when `what` happens; false when the time is over. Throws the first failure.
  template <class Done>
  bool wait(World::Wait what, std::chrono::steady_clock::time_point until, Done&& done) {
    return host->drives() ? drive(what, until, done) : sleep(what, until, done);
  }

  template <class Done>
  bool drive(World::Wait what, std::chrono::steady_clock::time_point until, Done&& done) {
    // To look at every actor's counter is dear, and the answer rarely changes while there is work.
    int turns_a_look = what == World::result ? 1 : 256;
    for (int turn = 0;; ++turn) {
      throw_failure();
      if (turn % turns_a_look == 0 && done()) return true;
      if (host->drive_one()) {
        if (std::chrono::steady_clock::now() >= until) return done();
        continue;
      }
      // Nothing is scheduled: all that was granted is done, or it never will be.
      if (steps_done() == world.opened.load()) return done();
      fail_stalled(world, *lowered, "no actor can fire although granted steps are not done");
    }
  }

  template <class Done>
  bool sleep(World::Wait what, std::chrono::steady_clock::time_point until, Done&& done) {
    world.waiting.store(what);
    std::unique_lock lock(world.mutex);
    bool is_done = false, in_time = true;
    while (!world.failure && !is_done && in_time && !world.interrupted) {
      int64_t seen = world.changes;
      lock.unlock();
      is_done = done();
      lock.lock();
      if (!is_done) in_time = world.changed.wait_until(lock, until, [&] { return world.changes != seen; });
    }
    world.waiting.store(World::nobody);
    world.interrupted = false;
    if (world.failure) throw Error(*world.failure);
    return is_done;
  }

  std::optional<StepResult> take() {
    if (world.results.parts_a_step > 0) return world.results.take();
    if (steps_done() <= taken) return std::nullopt;
    StepResult result;  // a plan without outputs still has steps
    result.step = world.step_base.load() + taken;
    if (!world.steps.feeds) result.batch = world.steps.source_extents(result.step)[batch_sym];
    ++taken;
    return result;
  }
  int64_t taken = 0;

  // Counters say that all is enqueued; on an asynchronous device it may still run.
  void settle_devices() {
    if (!world.async) return;
    for (auto& stream : lowered->streams) stream->device->synchronize();
    poller->settle();  // what waited for the devices is sent or given back
    std::unique_lock lock(world.mutex);
    if (!world.failures.empty() && !world.failure) world.failure = world.failures.front().error;
    if (world.failure) throw Error(*world.failure);
  }

  void require_drained() const {
    throw_failure();
    if (steps_done() != world.opened.load()) throw Error(Code::value, "steps are still running", {}, "drain first");
  }

  void require_here(int rank) const {
    if (rank < 0 || rank >= plan.ranks() || !world.neighbours.here(rank))
      throw Error(Code::value, fmt::format("rank {} is not hosted here", rank));
  }

  void push(std::shared_ptr<const Batch> batch, const Extents& extent) {
    throw_failure();
    if (!world.steps.feeds) return;
    if (world.steps.rows > 0) {
      Extents expected = world.steps.source_extents(world.step_base.load() + fed);
      if (expected[batch_sym] != extent[batch_sym])
        throw Error(Code::value, fmt::format("the batch has {} rows, but the data source brings {} in this step",
                                             extent[batch_sym], expected[batch_sym]));
    }
    world.steps.push(std::move(batch), extent);
    ++fed;
    open_gates();
  }

  Extents check_batch(const Batch& batch) const {
    Extents extent{};
    extent[batch_sym] = 0;
    for (auto& [name, type] : inputs) {
      auto found = batch.find(name);
      if (found == batch.end()) throw Error(Code::value, "the batch lacks the input '" + name + "'");
      check_input(name, type, found->second, extent);
    }
    for (auto& [name, array] : batch)
      if (!inputs.contains(name)) throw Error(Code::value, "the plan has no input '" + name + "'");
    if (extent[batch_sym] == 0) extent[batch_sym] = plan.batch_bound;
    return extent;
  }

  // The largest extent of a symbol. The plan's dims hold a micro-batch; the client's arrays a whole batch.
  int64_t bound(const Dim& dim) const { return dim.sym == batch_sym ? plan.batch_bound : dim.size / dim.granule; }

  void check_input(const std::string& name, const LogicalType& type, const HostArray& array, Extents& extent) const {
    std::string is = "input '" + name + "' is " + text_of(type);
    if (array.dtype != type.dtype) throw Error(Code::type, is + ", not " + std::string(name_of(array.dtype)));
    if (array.dims.size() != type.shape.size())
      throw Error(Code::value, is + ", not of shape " + text_of(fixed_shape(array.dims)));
    int64_t bytes = bytes_of(type.dtype);
    for (size_t d = 0; d < array.dims.size(); ++d) {
      auto& dim = type.shape[d];
      int64_t size = array.dims[d], units = size / dim.granule;
      auto& known = extent[size_t(dim.sym)];
      bool fits = dim.sym == fixed_sym
                      ? size == dim.size
                      : size > 0 && units <= bound(dim) && size % dim.granule == 0 && (!known || known == units);
      if (!fits) throw Error(Code::value, is + ", not of shape " + text_of(fixed_shape(array.dims)));
      if (dim.sym != fixed_sym) known = units;
      bytes *= size;
    }
    if (int64_t(array.data.size()) != bytes) throw Error(Code::value, is + ", but the data has another size");
  }
};

Floor::Floor(const Plan& plan, const FloorTables& tables, const FloorOptions& options, Neighbours neighbours)
    : impl_(std::make_unique<Impl>(plan, tables, options, std::move(neighbours))) {}

Floor::~Floor() = default;

void Floor::set_variable(const std::string& name, const HostArray& value) {
  impl_->require_drained();
  impl_->settle_devices();
  scatter_variable(impl_->world, *impl_->lowered, name, value);
}

HostArray Floor::variable(const std::string& name) {
  impl_->require_drained();
  impl_->settle_devices();
  return gather_variable(impl_->world, *impl_->lowered, name);
}

void Floor::set_part(const std::string& name, int rank, const HostArray& part) {
  impl_->require_drained();
  impl_->require_here(rank);
  impl_->settle_devices();
  impl_->settle_wires(name, rank);
  sluice::set_part(impl_->world, *impl_->lowered, name, rank, part);
}

HostArray Floor::part(const std::string& name, int rank) const {
  impl_->require_drained();
  impl_->require_here(rank);
  impl_->settle_devices();
  return get_part(impl_->world, *impl_->lowered, name, rank);
}

Extents Floor::check_feed(const std::map<std::string, HostArray>& batch) const { return impl_->check_batch(batch); }

void Floor::feed_extent(const Extents& extent) { impl_->push(nullptr, extent); }

void Floor::announce() {
  impl_->require_drained();
  impl_->settle_devices();
  impl_->announce();
}

void Floor::interrupt() {
  {
    std::lock_guard lock(impl_->world.mutex);
    impl_->world.interrupted = true;
  }
  impl_->world.tell_client();
}

void Floor::fail(const Error& error) {
  Failure failure;
  failure.actor = "client";
  failure.error = error;
  impl_->world.fail(std::move(failure));
}

void Floor::set_step(int64_t step) {
  impl_->require_drained();
  impl_->world.step_base.store(step - impl_->world.opened.load());
}

void Floor::grant(int64_t steps) {
  impl_->throw_failure();
  if (steps < 0 || steps > (int64_t(1) << 30) - (impl_->granted - impl_->steps_done()))
    throw Error(Code::value, fmt::format("{} steps cannot be granted", steps));
  impl_->granted += steps;
  impl_->open_gates();
}

void Floor::feed(std::map<std::string, HostArray> batch) {
  impl_->throw_failure();
  Extents extent = impl_->check_batch(batch);
  impl_->push(std::make_shared<const Batch>(std::move(batch)), extent);
}

std::optional<StepResult> Floor::wait_step(std::chrono::milliseconds timeout) {
  std::optional<StepResult> result;
  auto until =
      std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
  bool sinks = impl_->world.results.parts_a_step > 0;
  impl_->wait(sinks ? World::result : World::idle, until, [&] { return (result = impl_->take()).has_value(); });
  return result;
}

void Floor::drain() {
  auto never = std::chrono::steady_clock::time_point::max();
  if (!impl_->wait(World::idle, never, [&] { return impl_->steps_done() == impl_->world.opened.load(); }))
    throw Error(Code::cancelled, "the wait for running steps was interrupted");
  impl_->settle_devices();
}

int64_t Floor::steps_done() const { return impl_->steps_done(); }
int64_t Floor::rows() const { return impl_->world.steps.rows; }

RunStats Floor::stats() const {
  RunStats stats;
  for (auto& actor : impl_->lowered->actors) {
    int64_t fired = actor->fired.load(std::memory_order_acquire);
    stats.fired[actor->plan->name] += fired;
    stats.firings += fired;
  }
  for (auto& [key, reg] : impl_->lowered->registers) {
    auto& most = stats.alive_max[reg->plan->name];
    most = std::max<int64_t>(most, reg->full_max.load(std::memory_order_relaxed));
  }
  for (auto& stream : impl_->lowered->streams) stats.messages += stream->messages.load(std::memory_order_relaxed);
  stats.bytes_moved = impl_->world.bytes_moved.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace sluice
