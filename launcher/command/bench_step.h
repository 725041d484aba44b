// SPDX-License-Identifier: Apache-2.0
// Timing of one training step of fixed models, on one device or data-parallel over processes, by one plan.
// Thread rule: the main thread only; in one process it is pinned to `threads` cores.
#pragma once
#include <string>

#include "launcher/session.h"

namespace sluice {

struct BenchStep {
  std::string workload = "mlp";
  int procs = 1;    // the batch is split over them; more than 1: `start` leads to as many workers
  int threads = 1;  // of each
  double seconds = 6.0;
  bool loss = true;  // the loss is fetched each step; false: the plan has no output
};

struct StepTimes {
  double median_ms = 0, min_ms = 0, max_ms = 0, first_ms = 0, loss = 0;
  int steps = 0;
};

StepTimes bench_step(const BenchStep& bench, const StartPlan& start = {});
std::string step_json(const BenchStep& bench, const StepTimes& times);

}  // namespace sluice
