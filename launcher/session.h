// SPDX-License-Identifier: Apache-2.0
// Session: one job planned and run, in this process or on a cluster. Python's Job and the command drive this; there is
// no other way in.
//   plan (at construction) -> set_variable -> grant / feed -> wait_step ... -> drain -> variable
// Invariants: outputs of steps arrive in order; after drain() no actor is firing and variables may be read; after a
// failure every call throws that first failure until reset().
// Thread rule: one client thread a session; several sessions may run side by side in one process.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/floor.h"
#include "planner/planner.h"

namespace sluice {

// Every constant table of the system; made in main (or by the Python module) and handed down.
struct Tables {
  OpTable ops;
  std::span<const MoveDef* const> moves;
  std::span<const ActorDef* const> kinds;
  std::span<const DeviceDef* const> devices;
  std::span<const ReaderDef* const> readers;
  std::vector<std::pair<std::string, std::string>> plugins;  // path, hash: they stand in every plan
};
Tables builtin_tables(const std::vector<std::string>& plugins = {});  // loads plug-ins: the one load point

// What makes the runtime of a plan; empty: this process's own floor.
using StartPlan = std::function<std::unique_ptr<Runtime>(const Plan&, const FloorOptions&)>;

class Session {
 public:
  Session(Job job, Config config, const Tables& tables, const StartPlan& start = {});
  ~Session();

  const Plan& plan() const;
  const Job& job() const;

  void set_variable(const std::string& name, HostArray value);  // the whole logical tensor; checked against its type
  HostArray variable(const std::string& name);                  // drains first
  std::vector<std::string> variables() const;                   // states of optimizers included

  void grant(int64_t steps);                          // lets the sources (or feeds) start that many more steps
  void feed(std::map<std::string, HostArray> batch);  // queued; dims marked as batch may be smaller than the bound
  // The outputs of the next step, or nothing when the time is over. Throws the failure of the running world.
  std::optional<StepResult> wait_step(std::chrono::milliseconds timeout);
  void drain();
  int64_t steps_done() const;
  int64_t rows() const;         // of the first data source; 0: none
  void set_step(int64_t step);  // where the step counter (random numbers, order of data) goes on
  RunStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice
