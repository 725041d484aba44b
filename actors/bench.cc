// SPDX-License-Identifier: Apache-2.0
#include "actors/bench.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <thread>

#include "actors/testing.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
using testing_plans::PlanMaker;

constexpr int few = 16, many = 1000;  // actors in a row
constexpr int rounds = 5;
constexpr std::chrono::microseconds op_time{5};

void nothing(const Call&) {}
void five_microseconds(const Call&) {
  auto until = Clock::now() + op_time;
  while (Clock::now() < until) {
  }
}
constexpr OpDef nothing_op{.name = "nothing", .cpu = nothing};
constexpr OpDef five_op{.name = "five_microseconds", .cpu = five_microseconds};

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// A floor on a plan of these ops.
class Bench {
 public:
  Bench(Plan plan, const char* device, FloorOptions options)
      : ops_({&nothing_op, &five_op}),
        floor_(at_device(std::move(plan), device),
               {ops_, builtin_moves(), builtin_kinds(), builtin_devices(), builtin_readers()}, options) {}

  // Seconds a step, the best of the rounds; all steps granted at once, or one at a time. On a busy machine two spinning
  // workers wait for time slices, so there is an end to patience.
  double step(int steps, bool one_by_one = false) {
    double best = 1e9;
    auto start = Clock::now();
    for (int round = -1; round < rounds && (round < 1 || seconds(Clock::now() - start) < 2); ++round) {  // -1 warms up
      auto begin = Clock::now();
      for (int step = 0; step < (one_by_one ? steps : 1); ++step) {
        floor_.grant(one_by_one ? 1 : steps);
        floor_.drain();
      }
      if (round >= 0) best = std::min(best, seconds(Clock::now() - begin) / steps);
    }
    return best;
  }

 private:
  static Plan at_device(Plan plan, const char* device) {
    plan.device = device;
    return plan;
  }
  OpTable ops_;
  Floor floor_;
};

// Actors in a row, each joined to the next by `width` registers; actor i is on stream i % streams.
Plan chain(int length, const char* op, int streams, int width, int slots) {
  PlanMaker make;
  int c = make.cls(1, streams);
  auto registers = [&](int i) {
    std::vector<Port> ports;
    for (int w = 0; w < width; ++w)
      ports.push_back({make.reg(fmt::format("r{}.{}", i, w), c, make.fixed_type({1}), Sbp::broadcast(), slots)});
    return ports;
  };
  std::vector<Port> in;
  for (int i = 0; i < length; ++i) {
    auto out = registers(i);
    make.op(fmt::format("a{}", i), op, c, in, out, i % streams);
    in = std::move(out);
  }
  make.actor("end", "compute", c, in, {}, length % streams);
  return make.plan;
}

double idle_percent() {
  Bench bench(chain(few, "nothing", 2, 1, 1), "null", {});
  bench.step(10);
  auto cpu = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
  };
  double used = cpu();
  auto begin = Clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  return 100 * (cpu() - used) / seconds(Clock::now() - begin);
}

FloorOptions workers(int count, bool spin) {
  FloorOptions options;
  options.workers = count;
  options.spin = spin;
  return options;
}

}  // namespace

ActorFigures bench_actors() {
  ActorFigures figures;
  double ns = 1e9 / (few + 1);
  figures.hop_ns = ns * Bench(chain(few, "nothing", 1, 1, 2), "null", workers(1, false)).step(10'000);
  figures.hop_spin_ns = 1e9 / many * Bench(chain(many, "nothing", 2, 1, 2), "null", workers(2, true)).step(5, true);
  figures.fire_ns = ns * Bench(chain(few, "nothing", 1, 2, 2), "cpu", workers(1, false)).step(10'000);
  double whole = many * std::chrono::duration<double>(op_time).count();
  figures.chain_overhead = Bench(chain(many, "five_microseconds", 1, 1, 1), "cpu", workers(1, false)).step(10) / whole;
  figures.idle_cpu_percent = idle_percent();
  return figures;
}

std::string bench_actors_json() {
  ActorFigures figures = bench_actors();
  return fmt::format(
      "{{\"hop_ns\": {:.1f}, \"hop_spin_ns\": {:.1f}, \"fire_ns\": {:.1f}, \"chain_overhead\": {:.4f}, "
      "\"idle_cpu_percent\": {:.3f}}}",
      figures.hop_ns, figures.hop_spin_ns, figures.fire_ns, figures.chain_overhead, figures.idle_cpu_percent);
}

}  // namespace sluice
