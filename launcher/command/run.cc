// SPDX-License-Identifier: Apache-2.0
// `sluice run`: a script by the Python that this command was installed with, or a job's file in this process.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "config/config.h"
#include "launcher/command/command.h"
#include "launcher/command/run_job.h"

namespace sluice {
namespace {

struct Arguments {
  RunJob job;
  std::string target;
  std::vector<std::string> rest;
};

// The interpreter beside this command: the wheel puts both into one folder.
std::string python_beside() {
  std::error_code error;
  auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  auto python = self.parent_path() / "python";
  if (error || access(python.c_str(), X_OK) != 0)
    throw Error(Code::usage, fmt::format("there is no python beside this command ({})", self.parent_path().string()),
                {}, "run the `sluice` that the wheel installed, such as .venv/bin/sluice");
  return python;
}

// Replaces this process, so that signals and the exit code are the script's own. The script's jobs read the file's
// path from SLUICE_CONFIG.
int run_script(const Arguments& args) {
  if (!args.job.weights.empty() || !args.job.save.empty() || args.job.steps != 0)
    throw Error(Code::usage, "--weights, --save and --steps belong to a job's file; a script does that itself");
  if (!args.job.coalesce)
    throw Error(Code::usage, "--no-coalesce belongs to a job's file", {}, "for a script write [debug] coalesce = false");
  if (!args.job.config.empty()) {
    load_config(args.job.config);
    setenv("SLUICE_CONFIG", std::filesystem::absolute(args.job.config).c_str(), 1);
  }
  std::string python = python_beside();
  std::vector<std::string> words{python, args.target};
  words.insert(words.end(), args.rest.begin(), args.rest.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  execv(python.c_str(), argv.data());
  throw Error(Code::failed, fmt::format("{} cannot be started", python));
}

int run_target(const Arguments& args) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(args.target, error))
    throw Error(Code::usage, "no such file", {args.target}, "give a script (.py) or a job's file (.job)");
  auto kind = std::filesystem::path(args.target).extension();
  if (kind == ".py") return run_script(args);
  if (kind != ".job")
    throw Error(Code::usage, fmt::format("'{}' is neither a script (.py) nor a job's file (.job)", args.target));
  if (!args.rest.empty())
    throw Error(Code::usage, fmt::format("a job's file takes no arguments, and '{}' is one", args.rest[0]));
  RunJob job = args.job;
  job.job = args.target;
  return run_job(job);
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  auto args = std::make_shared<Arguments>();
  auto* sub = app.add_subcommand("run", "Train here: a script, or a job's file");
  sub->add_option("target", args->target, "A script (.py), or a file from job.save() (.job)")->required();
  sub->add_option("args", args->rest, "The script's own arguments, after --");
  sub->add_option("--config", args->job.config, "The TOML file; without it, one device");
  sub->add_option("--weights", args->job.weights, "A .job only: the first weights, a safetensors file");
  sub->add_option("--save", args->job.save, "A .job only: where the last weights go, a safetensors file");
  sub->add_option("--steps", args->job.steps, "A .job only: how many steps; else one epoch")->check(counts());
  sub->add_flag("!--no-coalesce", args->job.coalesce, "A .job only: one actor an op; the numbers stay the same");
  sub->callback([args, &action] { action = [args] { return run_target(*args); }; });
}

}  // namespace sluice
