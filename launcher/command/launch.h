// SPDX-License-Identifier: Apache-2.0
// `sluice run -n N`: a coordinator in this process, N workers and one client (a script, or a job's run) as children.
//
//   joining --all there--> running --the client ended, something failed, or a signal--> ending
//
// Invariants: when launch() returns, no process that it started is left, nor what those started; the exit code is 0
// only when all ended with 0, else that of what failed first; the last lines say why.
// Thread rule: the main thread, before any other is started.
#pragma once
#include <string>

#include "launcher/process.h"

namespace sluice {

struct Launch {
  int workers = 0;
  ProcessSpec client;
  std::string title;    // of the client, for messages: "train.py"
  std::string log_dir;  // a raw file a worker; "": none
  bool dedup = true;    // collapse equal lines of several workers
  int64_t join_ms_max = 30'000;
  int64_t grace_ms = 3000;  // from a signal or a failure to the client's end
};

int launch(const Launch& launch);  // returns the exit code; throws Error when it cannot begin

}  // namespace sluice
