// SPDX-License-Identifier: Apache-2.0
// The floor: one plan running, for the ranks of this process. It lowers the plan (peers, slices, offsets and
// addresses are arithmetic on coordinates), hosts the actors on streams, and talks to one client thread.
// This header names no CAF: CAF stays in the .cc files of this room.
// Thread rule: one client thread; results are handed over through our own queues.
#pragma once
#include <array>
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

using Extents = std::array<int64_t, syms_max>;

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

// What runs a plan, seen by its client: a floor in this process, or the floors of a cluster.
// Thread rule: one client thread.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual void set_variable(const std::string& name, const HostArray& value) = 0;  // only while drained
  virtual HostArray variable(const std::string& name) = 0;                         // only while drained
  virtual void set_step(int64_t step) = 0;                                         // only while drained
  virtual void grant(int64_t steps) = 0;
  virtual void feed(std::map<std::string, HostArray> batch) = 0;
  // The outputs of the next step, or nothing when the time is over. Throws the first failure.
  virtual std::optional<StepResult> wait_step(std::chrono::milliseconds timeout) = 0;
  virtual void drain() = 0;  // throws the first failure
  virtual int64_t steps_done() const = 0;
  virtual int64_t rows() const = 0;
  virtual RunStats stats() const = 0;
};

class Floor final : public Runtime {
 public:
  // Throws Error: no such device, no memory (with the bytes), a missing data file.
  // With neighbours only the ranks of this process are hosted; the transports must be connected.
  Floor(const Plan& plan, const FloorTables& tables, const FloorOptions& options, Neighbours neighbours = {});
  ~Floor() override;  // stops; joins; frees everything

  // Whole variables: only where all ranks are here.
  void set_variable(const std::string& name, const HostArray& value) override;
  HostArray variable(const std::string& name) override;

  void set_step(int64_t step) override;
  void grant(int64_t steps) override;
  void feed(std::map<std::string, HostArray> batch) override;
  std::optional<StepResult> wait_step(std::chrono::milliseconds timeout) override;
  void drain() override;
  int64_t steps_done() const override;
  int64_t rows() const override;
  RunStats stats() const override;

  // ---- of one process among several. Every process of a run is granted the same steps; a fed batch goes to the
  // process of rank 0, its extents to the others.
  void set_part(const std::string& name, int rank, const HostArray& part);  // a local rank's part; only while drained
  HostArray part(const std::string& name, int rank) const;                  // only while drained
  Extents check_feed(const std::map<std::string, HostArray>& batch) const;  // throws Error as feed() does
  void feed_extent(const Extents& extent);
  // Sends what readers in other processes must hold before the first step, and after set_part: initial tokens and
  // constants. Every process calls it after all are lowered and set, and none is granted before all have returned.
  void announce();
  void interrupt();               // any thread: wait_step and drain return early, once (drain: throws cancelled)
  void fail(const Error& error);  // any thread: a lost peer, say; the first failure stands

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A rank's part within the whole of a variable, or nothing where the rank holds none of it. `first`: of equal copies
// this one is read.
struct VariablePart {
  Piece piece;  // from: the part; to: the whole
  bool first = false;
};
std::optional<VariablePart> part_of(const Plan& plan, const std::string& name, int rank);

}  // namespace sluice
