// SPDX-License-Identifier: Apache-2.0
// The floor: one plan running, for the ranks of this process. It lowers the plan (peers, slices, offsets and
// addresses are arithmetic on coordinates), hosts the actors on streams, and talks to one client thread.
// This header names no CAF: CAF stays in the .cc files of this room.
// Thread rule: one client thread; results are handed over through our own queues.
#pragma once
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/move.h"
#include "comm/transport.h"
#include "data/reader.h"
#include "kernels/device/device.h"
#include "kernels/op.h"
#include "plan/plan.h"
#include "protocol/actor.h"

namespace sluice {

// A dense row-major tensor on the host.
struct HostArray {
  DType dtype = DType::float32;
  std::vector<int64_t> dims;
  std::vector<std::byte> data;
};

struct StepResult {
  int64_t step = 0;
  int64_t batch = 0;  // rows of this step's global batch
  std::map<std::string, HostArray> outputs;
};

struct FloorOptions {
  bool inline_drive = false;  // the client's thread drives the streams: one rank on a synchronous device
  int workers = 0;            // threads that host streams; 0: chosen from cores and streams
  int threads = 1;            // of each device's team
  bool spin = false;          // spin a little before parking; only where cores are free
  uint64_t delay_seed = 0;    // sim devices: of their random delays
  std::chrono::milliseconds watchdog{60'000};  // no firing for this long while steps are granted: report and fail
};

struct RunStats {  // summed over ranks
  int64_t firings = 0, messages = 0, bytes_moved = 0;
  std::map<std::string, int64_t> alive_max;  // per register: most slots that were full at once
  std::map<std::string, int64_t> fired;      // per actor of rank class, summed over its ranks
};

struct FloorTables {
  const OpTable& ops;
  std::span<const MoveDef* const> moves;
  std::span<const ActorDef* const> kinds;
  std::span<const DeviceDef* const> devices;
  std::span<const ReaderDef* const> readers;
};

class Floor {
 public:
  // Throws Error: no such device, no memory (with the bytes), a missing data file.
  Floor(const Plan& plan, const FloorTables& tables, const FloorOptions& options);
  ~Floor();  // stops; joins; frees everything

  void set_variable(const std::string& name, const HostArray& value);  // only while drained
  HostArray variable(const std::string& name) const;                   // only while drained

  void set_step(int64_t step);  // only while drained
  void grant(int64_t steps);
  void feed(std::map<std::string, HostArray> batch);
  std::optional<StepResult> wait_step(std::chrono::milliseconds timeout);  // throws the first failure
  void drain();                                                            // throws the first failure
  int64_t steps_done() const;
  int64_t rows() const;
  RunStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
