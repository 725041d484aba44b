// SPDX-License-Identifier: Apache-2.0
// The command's parts: each adds one subcommand to the parser and, when that was called, leaves what to run.
// Invariant: parsing runs nothing and reads no file.
// Thread rule: the main thread only.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace sluice {

using Action = std::function<int()>;  // returns the exit code

// Exit codes (docs/guide/command.md).
inline constexpr int exit_ok = 0, exit_failed = 1, exit_usage = 64, exit_interrupted = 130;

inline CLI::Range counts() { return CLI::Range(int64_t(1), int64_t(1) << 20); }  // what a count may be

void add_plan(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_config(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);

}  // namespace sluice
