// SPDX-License-Identifier: Apache-2.0
#include "launcher/command/run_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "checkpoint/safetensors.h"
#include "graph/job_file.h"
#include "launcher/command/command.h"
#include "launcher/connector.h"
#include "launcher/session.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t interrupted = 0;  // set by the handler of SIGINT only

class ListenForInterrupt {
 public:
  ListenForInterrupt() : before_(std::signal(SIGINT, [](int) { interrupted = 1; })) {}
  ~ListenForInterrupt() { std::signal(SIGINT, before_); }
  ListenForInterrupt(const ListenForInterrupt&) = delete;

 private:
  void (*before_)(int);
};

// The graph's own variables must be in the file; states of the optimizer may be.
void load_weights(Session& session, const std::string& path) {
  Checkpoint file(path);
  std::vector<std::string> missing;
  for (auto& variable : session.job().graph.variables)
    if (!file.find(variable.name)) missing.push_back(variable.name);
  if (!missing.empty())
    throw Error(Code::value, fmt::format("{} weights are missing, the first is '{}'", missing.size(), missing[0]),
                {path}, "save them with sl.save_safetensors(job.state_dict(), FILE)");
  for (auto& name : session.variables())
    if (auto* array = file.find(name))
      session.set_variable(name, {array->dtype, array->dims, {array->bytes.begin(), array->bytes.end()}});
}

void save_weights(Session& session, const std::string& path) {
  std::map<std::string, HostArray> values;
  for (auto& name : session.variables()) values[name] = session.variable(name);
  std::vector<NamedArray> arrays;
  for (auto& [name, value] : values) arrays.push_back({name, value.dtype, value.dims, value.data});
  write_safetensors(path, arrays);
  fmt::print("saved {} arrays: {}\n", arrays.size(), path);
}

std::string text_of(const StepResult& result) {
  std::string text;
  for (auto& [name, array] : result.outputs) {
    float single = 0;
    double value = 0;
    if (array.dtype == DType::float32 && array.data.size() == sizeof single)
      std::memcpy(&single, array.data.data(), sizeof single), value = double(single);
    else if (array.dtype == DType::float64 && array.data.size() == sizeof value)
      std::memcpy(&value, array.data.data(), sizeof value);
    else
      continue;
    text += fmt::format("  {} {:.6g}", name, value);
  }
  return text;
}

int64_t steps_of(const RunJob& run, const Session& session) {
  if (run.steps > 0) return run.steps;
  int64_t batch = session.plan().batch_bound;
  if (session.rows() == 0 || batch == 0)
    throw Error(Code::usage, "the job has no data of its own, so an epoch has no length", {run.job}, "give --steps N");
  return (session.rows() + batch - 1) / batch;
}

// Keeps some steps granted ahead, so that the actors never wait for this thread; a line every second.
void train(Session& session, int64_t steps) {
  constexpr int64_t ahead = 8;
  int64_t granted = 0, done = 0, rows = 0;
  auto last = Clock::now();
  while (done < steps && !(interrupted && done == granted)) {
    int64_t more = interrupted ? 0 : std::min(steps, done + ahead) - granted;
    if (more > 0) session.grant(more), granted += more;
    auto result = session.wait_step(200ms);
    if (!result) continue;
    ++done, rows += result->batch;
    double seconds = std::chrono::duration<double>(Clock::now() - last).count();
    if (seconds < 1 && done < steps) continue;
    fmt::print("step {}/{}{}  {:.0f} rows/s\n", done, steps, text_of(*result), double(rows) / std::max(seconds, 1e-9));
    std::fflush(stdout);
    last = Clock::now(), rows = 0;
  }
  session.drain();
}

}  // namespace

int run_job(const RunJob& run) {
  if (run.weights.empty())
    throw Error(Code::usage, "a job's file holds no weights", {run.job},
                "give --weights FILE, written by sl.save_safetensors(job.state_dict(), FILE)");
  Config config = run.config.empty() ? default_config() : load_config(run.config);
  if (!run.coalesce) config.coalesce.value = false;
  Tables tables = builtin_tables(config.plugins);
  Connector connector;
  Session session(load_job(run.job), config, tables, connector.start_with(tables, config));
  for (auto& input : session.job().graph.inputs)
    if (input.source < 0)
      throw Error(Code::usage, fmt::format("the input '{}' is fed by a client", input.name), {run.job},
                  "give the job its data (data=) before it is saved");
  load_weights(session, run.weights);
  ListenForInterrupt listen;
  train(session, steps_of(run, session));
  if (!run.save.empty()) save_weights(session, run.save);
  return interrupted ? exit_interrupted : exit_ok;
}

}  // namespace sluice
