// SPDX-License-Identifier: Apache-2.0
// Submitted jobs: what a client uploads, asks and reads, and the interface by which a coordinator reaches whoever keeps
// and runs them (launcher/spool.h). A job's bytes are only ever addressed by part and offset: no name or path that
// comes from a client is used as one.
// Thread rule: values; a JobStore is called from the coordinator's thread only, and each call is short.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

enum class JobPart : uint8_t {
  job,      // the job's file
  config,   // TOML
  weights,  // safetensors
  log,      // what it printed
  result,   // the weights after its last step, safetensors
};
inline constexpr JobPart uploaded_parts[] = {JobPart::job, JobPart::config, JobPart::weights};

enum class JobState : uint8_t { queued, running, done, failed, cancelled };
inline constexpr std::string_view job_state_names[] = {"queued", "running", "done", "failed", "cancelled"};

struct Submission {
  std::string name;                  // shown to people, never a path
  int64_t steps = 0;                 // 0: one epoch of the job's data
  std::map<JobPart, int64_t> bytes;  // of each part that is uploaded; job and weights are required
};

struct JobStatus {
  int64_t id = 0;
  std::string name;
  JobState state = JobState::queued;
  std::string why;                       // what it waits for, or how it ended
  int64_t devices = 0;                   // that it needs
  int exit_code = 0;                     // of an ended one
  int64_t submitted_s = 0, ended_s = 0;  // Unix time; 0: not yet
  int64_t log_bytes = 0, result_bytes = 0;
};

struct JobBytes {
  std::string bytes;
  bool last = false;  // nothing will ever follow: the job has ended, and this reaches to the end
};

// A job on its way in. Destroyed before finish(): everything of it is forgotten.
class JobUpload {
 public:
  virtual ~JobUpload() = default;
  // The next bytes of a part; throws Error when they are more than declared.
  virtual void write(JobPart part, std::span<const std::byte> bytes) = 0;
  // Queues the job and returns its id; throws Error: a part is not complete, not a job's file, a wrong config.
  virtual int64_t finish() = 0;
};

class JobStore {
 public:
  virtual ~JobStore() = default;
  virtual std::unique_ptr<JobUpload> open(const Submission& submission) = 0;  // throws Error: too large, too many
  virtual std::vector<JobStatus> jobs() = 0;                                  // in the order of submission
  // At most `bytes_max` from `offset`, of the log or the result; throws Error: no such job, not a part to be read.
  virtual JobBytes read(int64_t id, JobPart part, int64_t offset, int64_t bytes_max) = 0;
  virtual void cancel(int64_t id) = 0;  // throws Error: no such job; one that has ended stays as it is
};

}  // namespace sluice
