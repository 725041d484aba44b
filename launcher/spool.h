// SPDX-License-Identifier: Apache-2.0
// The jobs that were submitted to a coordinator: kept in a private folder, queued until their devices are free, and run
// one way: as a child `sluice run net.job`, a client of the coordinator like any other.
//
//   open -> write... -> finish = queued --> running --> done | failed | cancelled
//
// Invariants: files have names of ours only; no part grows beyond what was declared, no log beyond its cap; jobs start
// in the order of their submission; after the destructor no child runs and the folder is gone.
// Thread rule: any thread. A thread of its own starts and watches the children.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/cluster/store.h"
#include "launcher/guard.h"
#include "launcher/process.h"

namespace sluice {

// The files of a job, for whoever makes its command.
struct SpooledJob {
  int64_t id = 0, steps = 0;
  std::string job, config, weights, result;  // paths; config "": none
};

struct Room {  // of a cluster
  int64_t devices = 0, taken = 0;
  bool any = false;  // some worker takes any number of ranks
};

struct SpoolOptions {
  int64_t upload_bytes_max = int64_t(4) << 30;  // of one job; all that are kept: four times as much
  int64_t log_bytes_max = 64 << 20;
  size_t jobs_max = 256;    // kept, in whatever state; the oldest ended ones are forgotten for new ones
  int64_t grace_ms = 4000;  // from a cancelled job's SIGINT to its end
  std::function<ProcessSpec(const SpooledJob&)> command;
  std::function<Room()> room;
  Guard* guard = nullptr;  // null: none. Used on the spool's thread only
};

class Spool final : public JobStore {
 public:
  explicit Spool(const SpoolOptions& options);  // makes the folder; throws Error
  ~Spool() override;                            // ends the jobs that run
  Spool(const Spool&) = delete;

  // Jobs run from here on: who runs them is ready.
  void start();
  // Ends the jobs that run, and starts no more.
  void stop();
  void look();  // there may be more room now
  const std::string& folder() const;

  std::unique_ptr<JobUpload> open(const Submission& submission) override;
  std::vector<JobStatus> jobs() override;
  JobBytes read(int64_t id, JobPart part, int64_t offset, int64_t bytes_max) override;
  void cancel(int64_t id) override;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice
