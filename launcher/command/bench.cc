// SPDX-License-Identifier: Apache-2.0
#include "actors/bench.h"

#include <fmt/format.h>

#include "launcher/cluster/cluster.h"
#include "launcher/command/bench_move.h"
#include "launcher/command/bench_step.h"
#include "launcher/command/command.h"
#include "launcher/command/launch.h"

namespace sluice {
namespace {

std::string text_of(const ActorFigures& figures) {
  return fmt::format(
      "a hop within a stream {:.0f} ns, between spinning workers {:.0f} ns; a firing {:.0f} ns;\n"
      "1,000 ops of 5 us as 1,000 actors: {:.3f} times 5 ms; idle CPU {:.2f} %",
      figures.hop_ns, figures.hop_spin_ns, figures.fire_ns, figures.chain_overhead, figures.idle_cpu_percent);
}

// On workers that it starts itself, unless it is on some already: then this process is their client.
template <class F>
int on_workers(int procs, const std::vector<std::string>& words, F&& measure) {
  auto credentials = cluster_of_environment();
  if (credentials) return measure(*credentials);
  Launch start{.workers = procs, .title = "bench"};
  start.client.words = words;
  return launch(start);
}

std::vector<std::string> words_of(const BenchMove& bench, bool json) {
  std::vector<std::string> words{own_path(), "bench", "allreduce"};
  words.insert(words.end(), {"--procs", std::to_string(bench.procs), "--mib", fmt::format("{}", bench.mib)});
  words.insert(words.end(), {"--seconds", fmt::format("{}", bench.seconds)});
  if (json) words.push_back("--json");
  return words;
}

std::vector<std::string> words_of(const BenchStep& bench, bool json) {
  std::vector<std::string> words{own_path(), "bench", "step", "--workload", bench.workload};
  words.insert(words.end(), {"--procs", std::to_string(bench.procs), "--threads", std::to_string(bench.threads)});
  words.insert(words.end(), {"--seconds", fmt::format("{}", bench.seconds)});
  if (!bench.loss) words.push_back("--no-loss");
  if (json) words.push_back("--json");
  return words;
}

int run_step(const BenchStep& bench, bool json, const StartPlan& start) {
  StepTimes times = bench_step(bench, start);
  if (json)
    fmt::print("{}\n", step_json(bench, times));
  else
    fmt::print(
        "{}, {} process(es) of {} thread(s): {:.3f} ms a step (median of {}; {:.3f} to {:.3f}), first {:.1f} ms\n",
        bench.workload, bench.procs, bench.threads, times.median_ms, times.steps, times.min_ms, times.max_ms,
        times.first_ms);
  return exit_ok;
}

int run_allreduce(const BenchMove& bench, bool json) {
  return on_workers(bench.procs, words_of(bench, json), [&](const Credentials& credentials) {
    Cluster cluster(credentials);
    Plan plan = all_reduce_plan(bench);
    auto runtime = cluster.start({.plan = &plan, .floor = {}, .name = plan.job});
    auto times = bench_allreduce(bench, *runtime);
    if (json)
      fmt::print("{}\n", allreduce_json(bench, times));
    else
      fmt::print(
          "all-reduce of {} MiB between {} processes: {:.3f} ms (least {:.3f}), {:.2f} GB/s; memcpy {:.2f} GB/s\n",
          bench.mib, bench.procs, times.median_ms, times.min_ms, times.gb_s(bench), times.memcpy_gb_s);
    return exit_ok;
  });
}

int run_p2p(const BenchMove& bench, bool json) {
  auto times = bench_p2p(bench);
  if (json)
    fmt::print("{}\n", p2p_json(bench, times));
  else
    fmt::print("{}: messages of {} MiB: {:.2f} GB/s; 8 bytes one way: {:.1f} us; memcpy {:.2f} GB/s\n", bench.transport,
               bench.mib, times.gb_s(bench), times.latency_us, times.memcpy_gb_s);
  return exit_ok;
}

void add_moves(CLI::App& sub, std::shared_ptr<bool> json, Action& action) {
  auto args = std::make_shared<BenchMove>();
  auto add = [&](const char* name, const char* doc) {
    auto* made = sub.add_subcommand(name, doc);
    made->add_option("--mib", args->mib, "Size in MiB")->check(CLI::Range(1e-5, 4096.0))->capture_default_str();
    made->add_option("--seconds", args->seconds, "How long to measure")
        ->check(CLI::Range(0.01, 86400.0))
        ->capture_default_str();
    made->add_flag("--json", *json, "As JSON");
    return made;
  };
  auto* allreduce = add("allreduce", "An all-reduce between processes of this machine");
  allreduce->add_option("--procs", args->procs, "How many")->check(CLI::Range(2, 64))->capture_default_str();
  allreduce->callback([args, json, &action] { action = [args, json] { return run_allreduce(*args, *json); }; });
  auto* p2p = add("p2p", "One wire between two processes of this machine");
  p2p->add_option("--transport", args->transport, "ucx: TCP on loopback; shm: shared memory")
      ->check(CLI::IsMember({"ucx", "shm"}))
      ->capture_default_str();
  p2p->callback([args, json, &action] { action = [args, json] { return run_p2p(*args, *json); }; });
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto* sub = app.add_subcommand("bench", "Figures of this machine");
  sub->require_subcommand(0, 1);
  auto json = std::make_shared<bool>(false);

  auto* actors = sub->add_subcommand("actors", "What a hop, a firing and a chain cost");
  actors->add_flag("--json", *json, "As JSON");
  actors->callback([json, &action] {
    action = [json] {
      fmt::print("{}\n", *json ? bench_actors_json() : text_of(bench_actors()));
      return exit_ok;
    };
  });

  add_moves(*sub, json, action);

  auto args = std::make_shared<BenchStep>();
  auto* step = sub->add_subcommand("step", "One training step of a fixed model");
  step->add_option("--workload", args->workload, "mlp: 784-1024-1024-10, batch 256, Adam")->capture_default_str();
  step->add_option("--procs", args->procs, "Worker processes, dp = N; 1: in this process")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  step->add_option("--threads", args->threads, "Cores to use, of each process")->check(counts())->capture_default_str();
  step->add_option("--seconds", args->seconds, "How long to measure")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
  step->add_flag("!--no-loss", args->loss, "Do not fetch the loss");
  step->add_flag("--json", *json, "As JSON");
  step->callback([args, json, &action] {
    action = [args, json] {
      if (args->procs == 1) return run_step(*args, *json, {});
      return on_workers(args->procs, words_of(*args, *json), [&](const Credentials& credentials) {
        Cluster cluster(credentials);
        return run_step(*args, *json, [&](const Plan& plan, const FloorOptions& options) {
          return cluster.start({.plan = &plan, .floor = options, .name = plan.job});
        });
      });
    };
  });
}

}  // namespace sluice
