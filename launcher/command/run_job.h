// SPDX-License-Identifier: Apache-2.0
// A job's file, run without Python: in this process, or on the cluster of the environment.
// Thread rule: the main thread only: it listens for SIGINT while it runs.
#pragma once
#include <cstdint>
#include <string>

namespace sluice {

struct RunJob {
  std::string job, config;    // files
  std::string weights, save;  // safetensors; a job's file holds no weights, so `weights` is required
  int64_t steps = 0;          // 0: one epoch of its data
  bool coalesce = true;       // false: one actor an op, whatever the file says
};

// Returns the exit code: 130 after SIGINT, when the steps in flight have ended and the weights are saved.
int run_job(const RunJob& run);

}  // namespace sluice
