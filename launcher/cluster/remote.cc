// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/remote.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// Of a whole output: the plan's dims hold a micro-batch.
uint64_t bytes_of_output(const Plan& plan, const LogicalType& type) {
  uint64_t bytes = uint64_t(bytes_of(type.dtype));
  for (auto& dim : type.shape)
    bytes *= uint64_t(dim.sym == batch_sym ? std::max(dim.size, dim.granule * plan.batch_bound) : dim.size);
  return bytes;
}

// Answers of a command, for a thread that waits.
struct Asked {
  std::mutex mutex;
  std::condition_variable changed;
  int open = 0;
  RunLine::Replies replies;

  void add(RunLine::Replies more) {
    std::lock_guard lock(mutex);
    std::move(more.begin(), more.end(), std::back_inserter(replies));
    --open;
    changed.notify_all();
  }
};

class RemoteRuntime final : public Runtime {
 public:
  RemoteRuntime(const Plan& plan, RemoteRun run) : plan_(plan), run_(std::move(run)) {}

  void set_variable(const std::string& name, const HostArray& value) override;
  HostArray variable(const std::string& name) override;
  void set_step(int64_t step) override { ask({.kind = Command::set_step, .number = step}); }
  void grant(int64_t steps) override;
  void feed(std::map<std::string, HostArray> batch) override;
  std::optional<StepResult> wait_step(std::chrono::milliseconds timeout) override { return run_.inbox->wait(timeout); }
  void drain() override { ask({.kind = Command::drain}); }
  int64_t steps_done() const override;
  int64_t rows() const override { return run_.rows; }
  RunStats stats() const override;

 private:
  using Replies = RunLine::Replies;

  int processes() const { return run_.process_of_rank.empty() ? 0 : run_.process_of_rank.back() + 1; }
  Replies ask(Command command, int to = -1) const;
  Replies wait(Asked& asked) const;
  void throw_failure() const {
    if (auto failure = run_.inbox->failure()) throw Error(*failure);
  }
  void send_parts(const std::string& name, const HostArray& part, int process, const std::vector<int>& ranks,
                  const std::shared_ptr<Asked>& asked);
  HostArray read_part(const std::string& name, int rank, const VariablePart& part, DType dtype);
  void announce();
  DType dtype_of(const std::string& name) const;

  Plan plan_;
  RemoteRun run_;
  bool announced_ = false;
};

// Sends with `send`, which gets what to call when an answer is there, and counts them.
void send_counted(RunLine& line, const std::shared_ptr<Asked>& asked, int to, int but, Command command) {
  {
    std::lock_guard lock(asked->mutex);
    ++asked->open;
  }
  line.send(to, but, std::move(command), [asked](RunLine::Replies replies) { asked->add(std::move(replies)); });
}

RunLine::Replies RemoteRuntime::wait(Asked& asked) const {
  std::unique_lock lock(asked.mutex);
  asked.changed.wait(lock, [&] { return asked.open == 0; });
  for (auto& reply : asked.replies) {
    if (!reply.failure) continue;
    throw_failure();  // this may only follow from it
    throw Error(reply.failure->error);
  }
  return std::move(asked.replies);
}

RunLine::Replies RemoteRuntime::ask(Command command, int to) const {
  throw_failure();
  auto asked = std::make_shared<Asked>();
  send_counted(*run_.line, asked, to, -1, std::move(command));
  return wait(*asked);
}

// ---- variables

DType RemoteRuntime::dtype_of(const std::string& name) const {
  for (auto& reg : plan_.registers)
    if (reg.variable == name && !reg.tensors.empty()) return plan_.tensors.at(size_t(reg.tensors[0])).type.dtype;
  throw Error(Code::not_found, "the plan has no variable '" + name + "'");
}

// Equal parts of one process travel once.
void RemoteRuntime::set_variable(const std::string& name, const HostArray& value) {
  throw_failure();
  DType dtype = dtype_of(name);
  struct Parts {
    Piece piece;
    std::vector<int> ranks;
  };
  std::map<std::pair<int, std::vector<int64_t>>, Parts> parts;
  for (int rank = 0; rank < plan_.ranks(); ++rank) {
    auto part = part_of(plan_, name, rank);
    if (!part) continue;
    auto& piece = part->piece;
    int64_t bytes = bytes_of(dtype);
    for (int64_t dim : piece.to_dims) bytes *= dim;
    if (value.dtype != dtype || value.dims != piece.to_dims || int64_t(value.data.size()) != bytes)
      throw Error(Code::value,
                  fmt::format("variable '{}' is {}[{}]", name, name_of(dtype), fmt::join(piece.to_dims, ",")));
    std::vector<int64_t> box;
    for (auto& range : piece.to) box.insert(box.end(), {range.begin, range.size});
    auto& same = parts[{run_.process_of_rank[size_t(rank)], box}];
    same.piece = std::move(piece);
    same.ranks.push_back(rank);
  }
  announced_ = false;
  auto asked = std::make_shared<Asked>();
  for (auto& [where, same] : parts) {
    Piece piece = same.piece;
    std::swap(piece.from, piece.to);
    std::swap(piece.from_dims, piece.to_dims);
    HostArray part{dtype, piece.to_dims, std::vector<std::byte>(size_t(piece.numel() * bytes_of(dtype)))};
    run_piece(piece, dtype, value.data.data(), part.data.data());
    send_parts(name, part, where.first, same.ranks, asked);
  }
  wait(*asked);
}

void RemoteRuntime::send_parts(const std::string& name, const HostArray& part, int process,
                               const std::vector<int>& ranks, const std::shared_ptr<Asked>& asked) {
  cut({{name, &part}}, [&](std::vector<Chunk> chunks, bool last) {
    Command command{.kind = Command::set_part, .name = name, .ranks = ranks, .chunks = std::move(chunks), .last = last};
    send_counted(*run_.line, asked, process, -1, std::move(command));
  });
}

HostArray RemoteRuntime::variable(const std::string& name) {
  HostArray value{dtype_of(name), {}, {}};
  for (int rank = 0; rank < plan_.ranks(); ++rank) {
    auto part = part_of(plan_, name, rank);
    if (!part || !part->first) continue;
    HostArray mine = read_part(name, rank, *part, value.dtype);
    int64_t bytes = bytes_of(value.dtype);
    for (int64_t dim : part->piece.to_dims) bytes *= dim;
    value.dims = part->piece.to_dims;
    value.data.resize(size_t(bytes));
    run_piece(part->piece, value.dtype, mine.data.data(), value.data.data());
  }
  return value;
}

HostArray RemoteRuntime::read_part(const std::string& name, int rank, const VariablePart& part, DType dtype) {
  uint64_t bytes = uint64_t(part.piece.numel() * bytes_of(dtype)), offset = 0;
  Assembly assembly;
  do {
    auto replies = ask({.kind = Command::part, .name = name, .ranks = {rank}, .number = int64_t(offset)},
                       run_.process_of_rank[size_t(rank)]);
    if (replies.size() != 1) throw Error(Code::io, "a worker gives no answer");
    auto& chunk = replies[0].chunk;
    offset += chunk.data.size();
    bool good =
        chunk.name == name && chunk.total == bytes && chunk.dtype == dtype && (!chunk.data.empty() || bytes == 0);
    if (!good) throw Error(Code::io, "a worker gives another part of '" + name + "' than asked for");
    assembly.add(std::move(chunk), [&](const std::string&) { return bytes; });
  } while (offset < bytes);
  return std::move(assembly.take_all().at(name));
}

// ---- steps

void RemoteRuntime::announce() {
  if (announced_) return;
  ask({.kind = Command::announce});
  announced_ = true;
}

void RemoteRuntime::grant(int64_t steps) {
  throw_failure();
  if (steps < 0 || steps > int64_t(1) << 30) throw Error(Code::value, fmt::format("{} steps cannot be granted", steps));
  announce();
  run_.line->send(-1, -1, {.kind = Command::grant, .number = steps}, [inbox = run_.inbox](Replies replies) {
    for (auto& reply : replies)
      if (reply.failure) inbox->fail(reply.failure->error);
  });
}

// The process of rank 0 takes the batch and says how large it is; the others need to know no more.
void RemoteRuntime::feed(std::map<std::string, HostArray> batch) {
  throw_failure();
  announce();
  auto asked = std::make_shared<Asked>();
  std::vector<Named> arrays;
  for (auto& [name, array] : batch) arrays.push_back({name, &array});
  cut(arrays, [&](std::vector<Chunk> chunks, bool last) {
    send_counted(*run_.line, asked, 0, -1, {.kind = Command::feed, .chunks = std::move(chunks), .last = last});
  });
  auto replies = wait(*asked);
  if (processes() < 2 || replies.empty()) return;
  // Answers come in the order of calls.
  run_.line->send(-1, 0, {.kind = Command::feed_extent, .extents = replies.back().extents},
                  [inbox = run_.inbox](Replies all) {
                    for (auto& reply : all)
                      if (reply.failure) inbox->fail(reply.failure->error);
                  });
}

int64_t RemoteRuntime::steps_done() const {
  int64_t done = std::numeric_limits<int64_t>::max();
  for (auto& reply : ask({.kind = Command::progress})) done = std::min(done, reply.number);
  return done;
}

RunStats RemoteRuntime::stats() const {
  RunStats all;
  for (int p = 0; p < processes(); ++p)
    for (auto& reply : ask({.kind = Command::stats}, p)) {
      auto& stats = reply.stats;
      all.firings += stats.firings, all.messages += stats.messages, all.bytes_moved += stats.bytes_moved;
      for (auto& [name, count] : stats.fired) all.fired[name] += count;
      for (auto& [name, count] : stats.alive_max) all.alive_max[name] = std::max(all.alive_max[name], count);
    }
  return all;
}

}  // namespace

std::unique_ptr<Runtime> make_remote(const Plan& plan, RemoteRun run) {
  return std::make_unique<RemoteRuntime>(plan, std::move(run));
}

Inbox::Inbox(const Plan& plan) {
  for (auto& actor : plan.actors)
    for (size_t i = 0; actor.kind == "sink" && i < actor.names.size() && i < actor.tensors.size(); ++i)
      limits_[actor.names[i]] = bytes_of_output(plan, plan.tensors.at(size_t(actor.tensors[i])).type);
}

void Inbox::push(RunEvent event) {
  std::lock_guard lock(mutex_);
  try {
    add(event);
  } catch (const Error& error) {
    if (!failure_) failure_ = error;
  }
  changed_.notify_all();
}

void Inbox::add(RunEvent& event) {
  if (event.kind == RunEvent::failed && event.failure && !failure_) failure_ = event.failure->error;
  if (event.kind == RunEvent::notice && notices_.size() < 100) notices_.push_back(event.text);
  if (event.kind != RunEvent::result) return;
  for (auto& chunk : event.chunks)
    assembly_.add(std::move(chunk), [&](const std::string& name) -> std::optional<uint64_t> {
      auto found = limits_.find(name);
      return found == limits_.end() ? std::nullopt : std::optional(found->second);
    });
  if (event.last) results_.push_back({event.step, event.batch, assembly_.take_all()});
}

void Inbox::fail(const Error& error) {
  std::lock_guard lock(mutex_);
  if (!failure_) failure_ = error;
  changed_.notify_all();
}

std::optional<Error> Inbox::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<StepResult> Inbox::wait(std::chrono::milliseconds timeout) {
  auto until = Clock::now() + std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return failure_ || !results_.empty(); });
  if (failure_) throw Error(*failure_);
  if (results_.empty()) return std::nullopt;
  StepResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

std::vector<std::string> Inbox::take_notices() {
  std::lock_guard lock(mutex_);
  return std::exchange(notices_, {});
}

}  // namespace sluice
