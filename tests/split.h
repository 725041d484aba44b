// SPDX-License-Identifier: Apache-2.0
// One plan over several floors, as if each were a process of its own, but driven by one client thread: what crosses
// between them goes over transports for processes.
// Thread rule: one client thread.
#pragma once
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "launcher/session.h"

namespace sluice::testing {

// Copies what is sent into receive slots and hands that over: the least a transport between processes does.
class Copying final : public Transport {
 public:
  std::string_view name() const override { return "copying"; }
  bool in_place() const override { return false; }
  void open_sender(const Wire& wire, std::function<void(uint32_t)> on_release) override {
    std::lock_guard lock(mutex_);
    line(wire).on_release = std::move(on_release);
  }
  void open_receiver(const Wire& wire, std::function<void(const Arrival&)> on_arrival) override {
    std::lock_guard lock(mutex_);
    line(wire).on_arrival = std::move(on_arrival);
  }
  void send(uint32_t wire, uint32_t slot, const SlotHeader& header, const std::byte* data, size_t bytes,
            const EventPtr&) override {
    deliver(wire, slot, header, data, bytes, false);
  }
  void refresh(uint32_t wire, uint32_t slot, const SlotHeader& header, const std::byte* data, size_t bytes) override {
    deliver(wire, slot, header, data, bytes, true);
  }
  void release(uint32_t wire, uint32_t slot) override {
    std::lock_guard lock(mutex_);
    if (!closed_) lines_.at(wire).on_release(slot);
  }
  void close() override {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  int64_t bytes_sent() const override {
    std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Line {
    Wire wire;
    std::function<void(uint32_t)> on_release;
    std::function<void(const Arrival&)> on_arrival;
    std::vector<std::byte> slots;
  };
  Line& line(const Wire& wire) {
    Line& line = lines_[wire.id];
    if (line.slots.empty()) line = {wire, {}, {}, std::vector<std::byte>(wire.slots * wire.bytes_max + 1)};
    check(line.wire.from_rank == wire.from_rank && line.wire.to_rank == wire.to_rank && line.wire.slots == wire.slots &&
              line.wire.bytes_max == wire.bytes_max,
          "the two ends of a wire differ");
    return line;
  }
  void deliver(uint32_t wire, uint32_t slot, const SlotHeader& header, const std::byte* data, size_t bytes,
               bool refresh) {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    Line& line = lines_.at(wire);
    check(slot < line.wire.slots && bytes <= line.wire.bytes_max, "a slot is sent that the wire does not have");
    std::byte* to = line.slots.data() + slot * line.wire.bytes_max;
    if (bytes) std::memcpy(to, data, bytes);
    if (!refresh) bytes_ += int64_t(bytes);
    line.on_arrival({header, slot, to, nullptr, refresh});
  }

  mutable std::mutex mutex_;
  std::map<uint32_t, Line> lines_;
  int64_t bytes_ = 0;
  bool closed_ = false;
};

// How `processes` reach each other: for each, its transports by process.
using Crossing =
    std::function<std::vector<std::vector<std::shared_ptr<Transport>>>(int processes, const std::vector<int>& of_rank)>;

inline std::vector<std::vector<std::shared_ptr<Transport>>> copying(int processes, const std::vector<int>&) {
  auto all = std::make_shared<Copying>();
  std::vector<std::vector<std::shared_ptr<Transport>>> to(static_cast<size_t>(processes));
  for (int p = 0; p < processes; ++p)
    for (int q = 0; q < processes; ++q) to[size_t(p)].push_back(p == q ? nullptr : all);
  return to;
}

// Processes of `hosts` hosts, in blocks: shared memory within one, UCX between two. 1: one host; 0: a host a process.
inline Crossing over_hosts(int hosts) {
  return [hosts](int processes, const std::vector<int>& of_rank) {
    auto host_of = [=](int p) { return hosts == 0 ? p : p * hosts / processes; };
    std::vector<ProcessGroup> groups;
    for (int p = 0; p < processes; ++p) {
      ProcessGroup group{.process = p, .processes = processes, .process_of_rank = of_rank, .run = 11};
      group.on_lost = [](int, const std::string&) {};
      group.silence_ms_max = 60'000;
      groups.push_back(group);
    }
    std::vector<std::shared_ptr<Transport>> none(static_cast<size_t>(processes));
    std::vector<std::vector<std::shared_ptr<Transport>>> to(none.size(), none);
    auto join = [&](auto make, auto reaches) {
      std::vector<std::shared_ptr<ProcessTransport>> transports;
      std::vector<std::thread> threads;
      for (auto& group : groups) transports.push_back(make(group));
      for (int p = 0; p < processes; ++p) {
        std::vector<std::string> addresses;
        for (int q = 0; q < processes; ++q)
          addresses.push_back(q != p && reaches(p, q) ? transports[size_t(q)]->address() : "");
        threads.emplace_back([transport = transports[size_t(p)], addresses] { transport->connect(addresses); });
        for (int q = 0; q < processes; ++q)
          if (!addresses[size_t(q)].empty()) to[size_t(p)][size_t(q)] = transports[size_t(p)];
      }
      for (auto& thread : threads) thread.join();
    };
    auto near = [&](int p, int q) { return host_of(p) == host_of(q); };
    join([](auto& group) { return make_shm(group); }, near);
    if (hosts != 1) join([](auto& group) { return make_ucx(group, ""); }, [&](int p, int q) { return !near(p, q); });
    return to;
  };
}

class SplitRuntime final : public Runtime {
 public:
  SplitRuntime(const Plan& plan, const FloorTables& tables, FloorOptions options, int processes,
               const Crossing& crossing)
      : plan_(plan) {
    processes = std::min(processes, plan.ranks());
    for (int p = 0; p < processes; ++p)
      of_rank_.insert(of_rank_.end(), size_t(piece_of(plan.ranks(), processes, p).size), p);
    options.inline_drive = false;
    auto transports = crossing(processes, of_rank_);
    for (int p = 0; p < processes; ++p)
      floors_.push_back(
          std::make_unique<Floor>(plan, tables, options, Neighbours{p, of_rank_, std::move(transports[size_t(p)])}));
  }

  void set_variable(const std::string& name, const HostArray& value) override {
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      auto part = part_of(plan_, name, rank);
      if (!part) continue;
      HostArray cut{value.dtype, part->piece.from_dims, {}};
      cut.data.resize(size_t(part->piece.numel() * bytes_of(value.dtype)));
      Piece turned = part->piece;
      std::swap(turned.from, turned.to);
      std::swap(turned.from_dims, turned.to_dims);
      run_piece(turned, value.dtype, value.data.data(), cut.data.data());
      floor_of(rank).set_part(name, rank, cut);
    }
    announced_ = false;
  }
  HostArray variable(const std::string& name) override {
    HostArray value;
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      auto part = part_of(plan_, name, rank);
      if (!part || !part->first) continue;
      HostArray mine = floor_of(rank).part(name, rank);
      int64_t elements = 1;
      for (int64_t dim : part->piece.to_dims) elements *= dim;
      value.dtype = mine.dtype;
      value.dims = part->piece.to_dims;
      value.data.resize(size_t(elements * bytes_of(mine.dtype)));
      run_piece(part->piece, mine.dtype, mine.data.data(), value.data.data());
    }
    return value;
  }
  void set_step(int64_t step) override {
    for (auto& floor : floors_) floor->set_step(step);
  }
  void grant(int64_t steps) override {
    for (auto& floor : floors_)
      if (!announced_) floor->announce();
    announced_ = true;
    for (auto& floor : floors_) floor->grant(steps);
  }
  void feed(std::map<std::string, HostArray> batch) override {
    Extents extent = floors_[0]->check_feed(batch);
    floors_[0]->feed(std::move(batch));
    for (size_t p = 1; p < floors_.size(); ++p) floors_[p]->feed_extent(extent);
  }
  std::optional<StepResult> wait_step(std::chrono::milliseconds timeout) override {
    auto until = std::chrono::steady_clock::now() + timeout;
    do {
      if (auto result = floors_[0]->wait_step(std::chrono::milliseconds(20))) return result;
      for (size_t p = 1; p < floors_.size(); ++p) floors_[p]->wait_step(std::chrono::milliseconds(0));
    } while (std::chrono::steady_clock::now() < until);
    return std::nullopt;
  }
  void drain() override {
    for (auto& floor : floors_) floor->drain();
  }
  int64_t steps_done() const override {
    int64_t done = floors_[0]->steps_done();
    for (auto& floor : floors_) done = std::min(done, floor->steps_done());
    return done;
  }
  int64_t rows() const override { return floors_[0]->rows(); }
  RunStats stats() const override { return floors_[0]->stats(); }

 private:
  Floor& floor_of(int rank) { return *floors_[size_t(of_rank_[size_t(rank)])]; }

  Plan plan_;
  std::vector<int> of_rank_;
  std::vector<std::unique_ptr<Floor>> floors_;
  bool announced_ = false;
};

inline StartPlan split_over(const Tables& tables, int processes, Crossing crossing) {
  return [&tables, processes, crossing](const Plan& plan, const FloorOptions& options) -> std::unique_ptr<Runtime> {
    FloorTables floor{tables.ops, tables.moves, tables.kinds, tables.devices, tables.readers};
    return std::make_unique<SplitRuntime>(plan, floor, options, processes, crossing);
  };
}

}  // namespace sluice::testing
