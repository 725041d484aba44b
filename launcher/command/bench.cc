// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#if __has_include("actors/bench.h")
#include "actors/bench.h"
#define SLUICE_BENCH_ACTORS
#endif
#include "launcher/command/bench_step.h"
#include "launcher/command/command.h"

namespace sluice {

void add_bench(CLI::App& app, Action& action) {
  auto* sub = app.add_subcommand("bench", "Figures of this machine");
  sub->require_subcommand(1);
  auto json = std::make_shared<bool>(false);

#ifdef SLUICE_BENCH_ACTORS
  auto* actors = sub->add_subcommand("actors", "What a hop, a firing and a chain cost");
  actors->add_flag("--json", *json, "As JSON (the only form so far)")->required();
  actors->callback([&action] {
    action = [] {
      fmt::print("{}\n", bench_actors_json());
      return exit_ok;
    };
  });

#endif
  auto args = std::make_shared<BenchStep>();
  auto* step = sub->add_subcommand("step", "One training step of a fixed model");
  step->add_option("--workload", args->workload, "mlp: 784-1024-1024-10, batch 256, Adam")->capture_default_str();
  step->add_option("--threads", args->threads, "Cores to use")->check(CLI::PositiveNumber)->capture_default_str();
  step->add_option("--seconds", args->seconds, "How long to measure")
      ->check(CLI::PositiveNumber)
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
