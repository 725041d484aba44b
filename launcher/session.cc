// SPDX-License-Identifier: Apache-2.0
#include "launcher/session.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "launcher/plugins.h"
#include "protocol/actor.h"

namespace sluice {
namespace {

int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

FloorOptions options_of(const Plan& plan, const Config& config) {
  FloorOptions options;
  options.inline_drive = plan.ranks() == 1 && plan.device != "sim" && plan.device != "cuda";
  options.threads = config.device_threads.value > 0 ? int(config.device_threads.value)
                                                    : std::max(1, cores() / std::max(1, plan.ranks()));
  options.delay_seed = plan.seed;
  return options;
}

}  // namespace

Tables builtin_tables(const std::vector<std::string>& plugins) {
  std::vector<const OpDef*> ops(builtin_ops().begin(), builtin_ops().end());
  std::vector<std::pair<std::string, std::string>> loaded;
  for (auto& path : plugins) {
    auto plugin = load_plugin(path);
    ops.insert(ops.end(), plugin.ops.begin(), plugin.ops.end());
    loaded.push_back({plugin.path, fmt::format("{:016x}", plugin.hash)});
  }
  return {OpTable(std::move(ops)), builtin_moves(), builtin_kinds(), builtin_devices(), builtin_readers(), loaded};
}

struct Session::State {
  Job job;
  Config config;
  const Tables& tables;
  Plan plan;
  std::unique_ptr<Runtime> runtime;

  const PlanTensor& tensor_of(const std::string& name) const {
    for (auto& reg : plan.registers)
      if (reg.variable == name) return plan.tensors[size_t(reg.tensors.at(0))];
    std::vector<std::string> names;
    for (auto& reg : plan.registers)
      if (!reg.variable.empty()) names.push_back(reg.variable);
    std::string near = nearest(name, names);
    throw Error(Code::not_found, fmt::format("no variable '{}'", name), {},
                near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  }
};

Session::Session(Job job, Config config, const Tables& tables, const StartPlan& start)
    : state_(std::make_unique<State>(std::move(job), std::move(config), tables)) {
  state_->plan = make_plan(state_->job, state_->config, {tables.ops, tables.moves});
  for (auto& plugin : tables.plugins) state_->plan.notes.push_back({"plugin " + plugin.first, plugin.second});
  FloorOptions options = options_of(state_->plan, state_->config);
  FloorTables floor{tables.ops, tables.moves, tables.kinds, tables.devices, tables.readers};
  state_->runtime = start ? start(state_->plan, options) : std::make_unique<Floor>(state_->plan, floor, options);
}

Session::~Session() = default;

const Plan& Session::plan() const { return state_->plan; }
const Job& Session::job() const { return state_->job; }

void Session::set_variable(const std::string& name, HostArray value) {
  auto& tensor = state_->tensor_of(name);
  auto dims = sizes_of(tensor.type.shape);
  if (value.dtype != tensor.type.dtype || value.dims != dims)
    throw Error(Code::value, fmt::format("'{}' is {}, not {}[{}]", name, text_of(tensor.type), name_of(value.dtype),
                                         fmt::join(value.dims, ",")));
  state_->runtime->set_variable(name, value);
}

HostArray Session::variable(const std::string& name) {
  state_->tensor_of(name);
  state_->runtime->drain();
  return state_->runtime->variable(name);
}

std::vector<std::string> Session::variables() const {
  std::vector<std::string> names;
  for (auto& reg : state_->plan.registers)
    if (!reg.variable.empty()) names.push_back(reg.variable);
  return names;
}

void Session::grant(int64_t steps) { state_->runtime->grant(steps); }
void Session::feed(std::map<std::string, HostArray> batch) { state_->runtime->feed(std::move(batch)); }
std::optional<StepResult> Session::wait_step(std::chrono::milliseconds timeout) {
  return state_->runtime->wait_step(timeout);
}
void Session::drain() { state_->runtime->drain(); }
int64_t Session::steps_done() const { return state_->runtime->steps_done(); }
int64_t Session::rows() const { return state_->runtime->rows(); }
void Session::set_step(int64_t step) { state_->runtime->set_step(step); }
RunStats Session::stats() const { return state_->runtime->stats(); }

}  // namespace sluice
