// SPDX-License-Identifier: Apache-2.0
// The command's parts: each adds one subcommand to the parser and, when that was called, leaves what to run.
// Invariant: parsing runs nothing and reads no file.
// Thread rule: the main thread only.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "base/error.h"

namespace sluice {

using Action = std::function<int()>;  // returns the exit code

// Exit codes (docs/guide/command.md).
inline constexpr int exit_ok = 0, exit_failed = 1, exit_usage = 64, exit_unreachable = 69, exit_rendezvous = 71,
                     exit_interrupted = 130;

// A coordinator that is not there, or no more.
struct Unreachable : Error {
  explicit Unreachable(const Error& error) : Error(error) {}
};
// Runs what speaks to a coordinator; what fails there is Unreachable.
template <class F>
auto reaching(F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (error.code() == Code::failed) throw Unreachable(error);
    throw;
  }
}

inline CLI::Range counts() { return CLI::Range(int64_t(1), int64_t(1) << 20); }  // what a count may be

std::string own_path();  // of this program

void add_plan(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_config(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_cluster(CLI::App& app, Action& action);  // coordinator, worker
void add_jobs(CLI::App& app, Action& action);     // submit, jobs, logs, cancel

}  // namespace sluice
