// SPDX-License-Identifier: Apache-2.0
// `sluice run`: a script by the Python that this command was installed with, or a job's file in this process.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "config/config.h"
#include "launcher/command/command.h"
#include "launcher/command/launch.h"
#include "launcher/command/run_job.h"

namespace sluice {
namespace {

struct Arguments {
  RunJob job;
  std::string target;
  std::vector<std::string> rest;
  Launch launch;  // workers 0: here
  double join_seconds = 30, grace_seconds = 3;
};

// The interpreter beside this command: the wheel puts both into one folder.
std::string python_beside() {
  auto folder = std::filesystem::path(own_path()).parent_path();
  auto python = folder / "python";
  if (access(python.c_str(), X_OK) != 0)
    throw Error(Code::usage, fmt::format("there is no python beside this command ({})", folder.string()), {},
                "run the `sluice` that the wheel installed, such as .venv/bin/sluice");
  return python;
}

int launch_client(const Arguments& args, ProcessSpec client) {
  if (std::getenv("SLUICE_CLUSTER"))
    throw Error(Code::usage,
                fmt::format("-n {} starts workers here, and SLUICE_CLUSTER={} names a cluster", args.launch.workers,
                            std::getenv("SLUICE_CLUSTER")),
                {}, "leave out -n, or unset SLUICE_CLUSTER and SLUICE_SECRET_FILE");
  Launch what = args.launch;
  what.client = std::move(client);
  what.title = std::filesystem::path(args.target).filename();
  what.join_ms_max = int64_t(args.join_seconds * 1000);
  what.grace_ms = int64_t(args.grace_seconds * 1000);
  return launch(what);
}

// Without -n it replaces this process, so that signals and the exit code are the script's own. The script's jobs read
// the file's path from SLUICE_CONFIG.
int run_script(const Arguments& args) {
  if (!args.job.weights.empty() || !args.job.save.empty() || args.job.steps != 0)
    throw Error(Code::usage, "--weights, --save and --steps belong to a job's file; a script does that itself");
  if (!args.job.coalesce)
    throw Error(Code::usage, "--no-coalesce belongs to a job's file", {},
                "for a script write [debug] coalesce = false");
  if (!args.job.config.empty()) {
    load_config(args.job.config);
    setenv("SLUICE_CONFIG", std::filesystem::absolute(args.job.config).c_str(), 1);
  }
  std::string python = python_beside();
  std::vector<std::string> words{python, args.target};
  words.insert(words.end(), args.rest.begin(), args.rest.end());
  if (args.launch.workers > 0) return launch_client(args, {.words = words});
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  execv(python.c_str(), argv.data());
  throw Error(Code::failed, fmt::format("{} cannot be started", python));
}

// The same command without -n, as the client of the workers.
int launch_job(const Arguments& args) {
  if (!args.job.config.empty()) load_config(args.job.config);  // a wrong one is told before anything starts
  std::vector<std::string> words{own_path(), "run", args.target};
  auto pass = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  pass("--config", args.job.config);
  pass("--weights", args.job.weights);
  pass("--save", args.job.save);
  pass("--steps", args.job.steps > 0 ? std::to_string(args.job.steps) : "");
  if (!args.job.coalesce) words.push_back("--no-coalesce");
  return launch_client(args, {.words = words});
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
  if (args.launch.workers > 0) return launch_job(args);
  RunJob job = args.job;
  job.job = args.target;
  return run_job(job);
}

}  // namespace

std::string own_path() {
  std::error_code error;
  auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw Error(Code::failed, "/proc/self/exe cannot be read: " + error.message());
  return path;
}

void add_run(CLI::App& app, Action& action) {
  auto args = std::make_shared<Arguments>();
  auto* sub = app.add_subcommand("run", "Train: a script, or a job's file");
  sub->add_option("target", args->target, "A script (.py), or a file from job.save() (.job)")->required();
  sub->add_option("args", args->rest, "The script's own arguments, after --");
  sub->add_option("--config", args->job.config, "The TOML file; without it, one device");
  sub->add_option("--weights", args->job.weights, "A .job only: the first weights, a safetensors file");
  sub->add_option("--save", args->job.save, "A .job only: where the last weights go, a safetensors file");
  sub->add_option("--steps", args->job.steps, "A .job only: how many steps; else one epoch")->check(counts());
  sub->add_flag("!--no-coalesce", args->job.coalesce, "A .job only: one actor an op; the numbers stay the same");
  sub->add_option("-n,--workers", args->launch.workers, "Start so many worker processes here, and run on them")
      ->check(CLI::Range(1, 4096));
  sub->add_option("--log-dir", args->launch.log_dir, "With -n: a folder for what each worker prints");
  sub->add_flag("!--no-dedup", args->launch.dedup, "With -n: show equal lines of several workers one by one");
  sub->add_option("--join-seconds", args->join_seconds, "With -n: how long workers may take to join")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  sub->add_option("--grace-seconds", args->grace_seconds, "With -n: from Ctrl-C or a failure to the end by force")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  sub->callback([args, &action] { action = [args] { return run_target(*args); }; });
}

}  // namespace sluice
