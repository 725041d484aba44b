// SPDX-License-Identifier: Apache-2.0
#include "launcher/command/bench_move.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "actors/testing.h"
#include "base/error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

int64_t elements_of(const BenchMove& bench) { return std::max<int64_t>(1, int64_t(bench.mib * 1048576) / 4); }

double memcpy_gb_s(size_t bytes) {
  std::vector<std::byte> from(bytes, std::byte(1)), to(bytes);
  std::vector<double> all;
  for (int i = 0; i < 12; ++i) {
    auto begin = Clock::now();
    std::memcpy(to.data(), from.data(), bytes);
    all.push_back(ms_since(begin));
  }
  return double(bytes) / (median(all) * 1e6);
}

}  // namespace

// Each all-reduce begins when the last one has ended on every rank that hears from it:
//   whole --> start --> partial --> the move's hops --> whole
Plan all_reduce_plan(const BenchMove& bench) {
  testing_plans::PlanMaker make;
  int cls = make.cls(bench.procs);
  auto type = make.fixed_type({elements_of(bench)});
  int whole = make.reg("whole", cls, type, Sbp::broadcast());
  make.plan.registers[size_t(whole)].initial = 1;
  int from = make.reg("partial", cls, type, Sbp::partial());
  make.actor("start", "compute", cls, {{whole}}, {{from}});
  auto& mesh = make.plan.classes[size_t(cls)].mesh;
  PlacedType partial{type, &mesh, {Sbp::partial()}}, everywhere{type, &mesh, {Sbp::broadcast()}};
  auto& move = move_for(builtin_moves(), partial, everywhere);
  int hop = 0;
  if (move.between)
    for (auto& between : move.between(partial, everywhere)) {
      int next = make.reg("hop" + std::to_string(hop++), cls, type, between.sbp[0]);
      make.move(make.plan.registers[size_t(next)].name, cls, from, next);
      from = next;
    }
  make.move("last", cls, from, whole);
  make.plan.job = "bench allreduce";
  return make.plan;
}

MoveTimes bench_allreduce(const BenchMove& bench, Runtime& runtime) {
  int64_t at_once = std::max<int64_t>(3, std::min<int64_t>(500, int64_t(200 / bench.mib)));
  auto round = [&] {
    auto begin = Clock::now();
    runtime.grant(at_once);
    runtime.drain();
    return ms_since(begin) / double(at_once);
  };
  round();
  std::vector<double> all;
  for (auto begin = Clock::now(); ms_since(begin) < bench.seconds * 1e3 || all.size() < 5;) all.push_back(round());
  return {median(all), *std::min_element(all.begin(), all.end()), 0, int(all.size()),
          memcpy_gb_s(size_t(elements_of(bench)) * 4)};
}

std::string allreduce_json(const BenchMove& bench, const MoveTimes& times) {
  auto rounded = [](double value) { return std::round(value * 1e4) / 1e4; };
  return nlohmann::ordered_json{{"framework", "sluice"},
                                {"procs", bench.procs},
                                {"mib", bench.mib},
                                {"ms", rounded(times.median_ms)},
                                {"min", rounded(times.min_ms)},
                                {"rounds", times.rounds},
                                {"gb_s", rounded(times.gb_s(bench))},
                                {"memcpy_gb_s", rounded(times.memcpy_gb_s)}}
      .dump();
}

// ---- p2p -----------------------------------------------------------------------------------------------------------

namespace {

constexpr uint32_t slots = 8;  // messages in flight

// One of two processes, wired to the other: wire 0 from rank 0 to rank 1, wire 1 back, for its small answers.
class End {
 public:
  End(const BenchMove& bench, int process, int socket) : bytes_(size_t(elements_of(bench)) * 4), process_(process) {
    ProcessGroup group{.process = process, .processes = 2, .process_of_rank = {0, 1}, .run = 1};
    group.on_lost = [](int, const std::string& why) {
      fprintf(stderr, "sluice: error: %s\n", why.c_str());
      _exit(1);
    };
    group.silence_ms_max = 60'000;
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) group.spin_us = 50;
    transport_ = bench.transport == "shm" ? make_shm(group) : make_ucx(group, "");
    std::vector<std::string> addresses(2);
    addresses[size_t(1 - process)] = exchange(socket, transport_->address());
    transport_->connect(addresses);
    Wire there{0, 0, 1, slots, bytes_}, back{1, 1, 0, slots, bytes_};
    transport_->open_sender(process == 0 ? there : back, [this](uint32_t) { post(credits_); });
    transport_->open_receiver(process == 0 ? back : there, [this](const Arrival& arrival) {
      if (echo_)
        send(arrival.header.sequence, size_t(arrival.header.bytes_valid));
      else
        post(arrived_);
      transport_->release(arrival_wire(), arrival.slot);
    });
    credits_ = slots;
    auto* memory = transport_->memory();
    if (!memory) own_.resize(bytes_);
    data_ = memory ? static_cast<std::byte*>(memory->allocate(bytes_)) : own_.data();
    std::memset(data_, 1, bytes_);
    exchange(socket, "ready");
  }
  ~End() { transport_->close(); }

  void echo(bool on) { echo_ = on; }
  void send(int64_t sequence, size_t bytes) {
    SlotHeader header{.sequence = sequence, .bytes_valid = int64_t(bytes)};
    transport_->send(uint32_t(process_), uint32_t(sequence % slots), header, data_, bytes, nullptr);
  }
  void take_credit() { take(credits_); }
  void take_arrival() { take(arrived_); }
  void wait_for_all_credits() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return credits_ == slots; });
  }
  size_t bytes() const { return bytes_; }

  static std::string exchange(int socket, const std::string& mine) {
    uint32_t size = uint32_t(mine.size());
    check(write(socket, &size, 4) == 4 && write(socket, mine.data(), size) == ssize_t(size), "the other end is gone");
    check(recv(socket, &size, 4, MSG_WAITALL) == 4 && size <= 4096, "the other end is gone");
    std::string theirs(size, '\0');
    check(recv(socket, theirs.data(), size, MSG_WAITALL) == ssize_t(size), "the other end is gone");
    return theirs;
  }

 private:
  uint32_t arrival_wire() const { return uint32_t(1 - process_); }
  void post(uint32_t& count) {
    std::lock_guard lock(mutex_);
    ++count;
    changed_.notify_one();
  }
  void take(uint32_t& count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count > 0; });
    --count;
  }

  const size_t bytes_;
  const int process_;
  std::unique_ptr<ProcessTransport> transport_;
  std::vector<std::byte> own_;
  std::byte* data_ = nullptr;
  std::atomic<bool> echo_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t credits_ = 0, arrived_ = 0;
};

// Answers what comes until the other end hangs up: first echoes, then only takes.
[[noreturn]] void answer(const BenchMove& bench, int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    End end(bench, 1, socket);
    end.echo(true);
    End::exchange(socket, "echoing");
    End::exchange(socket, "taking");
    end.echo(false);
    End::exchange(socket, "done");
  } catch (const std::exception& error) {
    fprintf(stderr, "sluice: error: %s\n", error.what());
    _exit(1);
  }
  _exit(0);
}

}  // namespace

MoveTimes bench_p2p(const BenchMove& bench) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    throw Error(Code::failed, "no pair of sockets to be had");
  pid_t child = fork();  // before any thread is started
  if (child < 0) throw Error(Code::failed, "no second process to be had");
  if (child == 0) answer(bench, sockets[1]);
  close(sockets[1]);
  MoveTimes times;
  {
    End end(bench, 0, sockets[0]);
    End::exchange(sockets[0], "echoing");
    std::vector<double> trips, flows;
    int64_t sequence = 0;
    for (auto begin = Clock::now(); ms_since(begin) < 300 || trips.size() < 20; ++sequence) {
      auto one = Clock::now();
      end.take_credit();
      end.send(sequence, 8);
      end.take_arrival();
      trips.push_back(ms_since(one) * 1e3 / 2);
    }
    end.wait_for_all_credits();
    End::exchange(sockets[0], "taking");
    int64_t at_once = std::max<int64_t>(16, std::min<int64_t>(2000, int64_t(256 / bench.mib)));
    for (auto begin = Clock::now(); ms_since(begin) < bench.seconds * 1e3 || flows.size() < 3;) {
      auto one = Clock::now();
      for (int64_t i = 0; i < at_once; ++i, ++sequence) {
        end.take_credit();
        end.send(sequence, end.bytes());
      }
      end.wait_for_all_credits();
      flows.push_back(ms_since(one) / double(at_once));
    }
    End::exchange(sockets[0], "done");
    times = {median(flows), *std::min_element(flows.begin(), flows.end()), median(trips), int(flows.size()),
             memcpy_gb_s(end.bytes())};
  }
  int status = 0;
  waitpid(child, &status, 0);
  close(sockets[0]);
  return times;
}

std::string p2p_json(const BenchMove& bench, const MoveTimes& times) {
  auto rounded = [](double value) { return std::round(value * 1e4) / 1e4; };
  return nlohmann::ordered_json{{"framework", "sluice"},
                                {"transport", bench.transport},
                                {"mib", bench.mib},
                                {"ms", rounded(times.median_ms)},
                                {"min", rounded(times.min_ms)},
                                {"latency_us", rounded(times.latency_us)},
                                {"gb_s", rounded(times.gb_s(bench))},
                                {"memcpy_gb_s", rounded(times.memcpy_gb_s)}}
      .dump();
}

}  // namespace sluice
