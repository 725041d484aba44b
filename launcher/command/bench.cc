// SPDX-License-Identifier: Apache-2.0
#include "actors/bench.h"

#include <fmt/format.h>

#include "launcher/command/bench_step.h"
#include "launcher/command/command.h"

namespace sluice {
namespace {

std::string text_of(const ActorFigures& figures) {
  return fmt::format(
      "a hop within a stream {:.0f} ns, between spinning workers {:.0f} ns; a firing {:.0f} ns;\n"
      "1,000 ops of 5 us as 1,000 actors: {:.3f} times 5 ms; idle CPU {:.2f} %",
      figures.hop_ns, figures.hop_spin_ns, figures.fire_ns, figures.chain_overhead, figures.idle_cpu_percent);
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

  auto args = std::make_shared<BenchStep>();
  auto* step = sub->add_subcommand("step", "One training step of a fixed model");
  step->add_option("--workload", args->workload, "mlp: 784-1024-1024-10, batch 256, Adam")->capture_default_str();
  step->add_option("--threads", args->threads, "Cores to use")->check(counts())->capture_default_str();
  step->add_option("--seconds", args->seconds, "How long to measure")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
  step->add_flag("!--no-loss", args->loss, "Do not fetch the loss");
  step->add_flag("--json", *json, "As JSON");
  step->callback([args, json, &action] {
    action = [args, json] {
      StepTimes times = bench_step(*args);
      if (*json)
        fmt::print("{}\n", step_json(*args, times));
      else
        fmt::print("{}, {} thread(s): {:.3f} ms a step (median of {}; {:.3f} to {:.3f}), first {:.1f} ms\n",
                   args->workload, args->threads, times.median_ms, times.steps, times.min_ms, times.max_ms,
                   times.first_ms);
      return exit_ok;
    };
  });
}

}  // namespace sluice
