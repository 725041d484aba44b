// SPDX-License-Identifier: Apache-2.0
// `sluice submit`, `jobs`, `logs` and `cancel`: a standing cluster's jobs.
#include <fmt/format.h>
#include <poll.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/config.h"
#include "graph/job_file.h"
#include "launcher/command/command.h"
#include "launcher/process.h"
#include "launcher/reach.h"

namespace sluice {
namespace {

constexpr int look_ms = 200;  // between two looks at a job that runs

struct Arguments {
  std::string to, secret;
  int64_t id = 0;
  bool follow = false, json = false, wait = false;
  std::string job, config, weights, save;
  int64_t steps = 0;
};

Cluster reach(const Arguments& args) {
  Credentials credentials = credentials_of(args.to, args.secret);
  return reaching([&] { return Cluster(credentials); });
}

const JobStatus& status_of(const std::vector<JobStatus>& jobs, int64_t id) {
  for (auto& job : jobs)
    if (job.id == id) return job;
  throw Error(Code::not_found, fmt::format("there is no job {}", id), {}, "see: sluice jobs");
}

// Prints the log from its start, as it grows. False: a signal came first.
bool follow(Cluster& cluster, int64_t id, Signals& signals) {
  int64_t offset = 0;
  while (true) {
    JobBytes piece = cluster.read_job(id, JobPart::log, offset);
    fmt::print("{}", piece.bytes);
    std::fflush(stdout);
    offset += int64_t(piece.bytes.size());
    if (piece.last) return true;
    pollfd signal{signals.handle(), POLLIN, 0};
    if (::poll(&signal, 1, piece.bytes.empty() ? look_ms : 0) > 0) return false;
  }
}

// The weights after the last step; whole or not at all.
void fetch_result(Cluster& cluster, int64_t id, const std::string& path) {
  std::string part = path + ".part";
  try {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    for (int64_t offset = 0; out;) {
      JobBytes piece = cluster.read_job(id, JobPart::result, offset);
      out.write(piece.bytes.data(), std::streamsize(piece.bytes.size()));
      offset += int64_t(piece.bytes.size());
      if (piece.last) break;
      if (piece.bytes.empty()) throw Error(Code::failed, fmt::format("job {} has no weights to save", id));
    }
    if (!out.flush()) throw Error(Code::io, "the weights cannot be written", {part});
    std::filesystem::rename(part, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    throw;
  }
}

// ---- submit --------------------------------------------------------------------------------------------------------

// What the coordinator would refuse later is said here, where the files have names.
void check_files(const Arguments& args) {
  if (args.weights.empty())
    throw Error(Code::usage, "a job's file holds no weights", {args.job},
                "give --weights FILE, written by sl.save_safetensors(job.state_dict(), FILE)");
  for (auto& input : load_job(args.job).graph.inputs)
    if (input.source < 0)
      throw Error(Code::usage, fmt::format("the input '{}' is fed by a client", input.name), {args.job},
                  "give the job its data (data=) before it is saved");
  if (!args.config.empty()) load_config(args.config);
  if (!std::filesystem::is_regular_file(args.weights)) throw Error(Code::usage, "no such file", {args.weights});
}

int wait_for(Cluster& cluster, int64_t id, const std::string& save, Signals& signals) {
  if (!follow(cluster, id, signals)) {
    cluster.cancel_job(id);
    fmt::print(stderr, "sluice: job {} is cancelled\n", id);
    return exit_interrupted;
  }
  JobStatus status = status_of(cluster.jobs(), id);
  if (status.state != JobState::done) {
    fmt::print(stderr, "sluice: error: job {} {}{}{}\n", id, job_state_names[size_t(status.state)],
               status.why.empty() ? "" : ": ", status.why);
    return status.exit_code != 0 ? status.exit_code : exit_failed;
  }
  if (!save.empty()) fetch_result(cluster, id, save);
  return exit_ok;
}

int submit(const Arguments& args) {
  check_files(args);
  Signals signals({SIGINT, SIGTERM});
  auto cluster = reach(args);
  std::map<JobPart, std::string> files{{JobPart::job, args.job}, {JobPart::weights, args.weights}};
  if (!args.config.empty()) files[JobPart::config] = args.config;
  int64_t id = cluster.submit({std::filesystem::path(args.job).filename(), args.steps, {}}, files);
  bool wait = args.wait || !args.save.empty();
  if (!wait) fmt::print("{}\n", id);
  fmt::print(stderr, "sluice: job {} is queued; see it with: sluice logs {} -f\n", id, id);
  return wait ? wait_for(cluster, id, args.save, signals) : exit_ok;
}

// ---- jobs, logs, cancel --------------------------------------------------------------------------------------------

nlohmann::json json_of(const JobStatus& job) {
  return {{"id", job.id},
          {"name", job.name},
          {"state", job_state_names[size_t(job.state)]},
          {"why", job.why},
          {"devices", job.devices},
          {"exit_code", job.exit_code},
          {"submitted_s", job.submitted_s},
          {"ended_s", job.ended_s}};
}

int show_jobs(const Arguments& args) {
  auto jobs = reach(args).jobs();
  if (args.json) {
    auto all = nlohmann::json::array();
    for (auto& job : jobs) all.push_back(json_of(job));
    fmt::print("{}\n", all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return exit_ok;
  }
  fmt::print("{:>4}  {:<9}  {:>7}  {:<20}  {}\n", "id", "state", "devices", "name", "why");
  for (auto& job : jobs)
    fmt::print("{:>4}  {:<9}  {:>7}  {:<20}  {}\n", job.id, job_state_names[size_t(job.state)], job.devices, job.name,
               job.why);
  return exit_ok;
}

int show_log(const Arguments& args) {
  Signals signals({SIGINT, SIGTERM});
  auto cluster = reach(args);
  if (args.follow) return follow(cluster, args.id, signals) ? exit_ok : exit_interrupted;
  for (int64_t offset = 0;;) {
    JobBytes piece = cluster.read_job(args.id, JobPart::log, offset);
    if (piece.bytes.empty()) return exit_ok;
    fmt::print("{}", piece.bytes);
    offset += int64_t(piece.bytes.size());
  }
}

int cancel(const Arguments& args) {
  reach(args).cancel_job(args.id);
  return exit_ok;
}

CLI::App* add(CLI::App& app, const std::shared_ptr<Arguments>& args, const char* name, const char* doc) {
  auto* sub = app.add_subcommand(name, doc);
  sub->add_option("--to", args->to, "The coordinator's HOST:PORT; else SLUICE_CLUSTER");
  sub->add_option("--secret", args->secret, "The file with its secret; else SLUICE_SECRET_FILE");
  return sub;
}

}  // namespace

void add_jobs(CLI::App& app, Action& action) {
  auto args = std::make_shared<Arguments>();
  auto acts = [args, &action](CLI::App* sub, int (*act)(const Arguments&)) {
    sub->callback([args, &action, act] { action = [args, act] { return act(*args); }; });
  };
  auto* one = add(app, args, "submit", "Give a job to a standing cluster, and print its id");
  one->add_option("job", args->job, "The job's file, from job.save()")->required();
  one->add_option("--config", args->config, "The TOML file; without it, one device");
  one->add_option("--weights", args->weights, "The first weights, a safetensors file");
  one->add_option("--steps", args->steps, "How many steps; else one epoch")->check(counts());
  one->add_flag("--wait", args->wait, "Show what it prints, and end as it ends; Ctrl-C cancels it");
  one->add_option("--save", args->save, "Wait, and put the last weights there, a safetensors file");
  acts(one, submit);
  auto* all = add(app, args, "jobs", "The jobs of a standing cluster");
  all->add_flag("--json", args->json, "As JSON");
  acts(all, show_jobs);
  auto* log = add(app, args, "logs", "What a submitted job printed");
  log->add_option("id", args->id, "The job's id")->required()->check(CLI::Range(int64_t(1), INT64_MAX));
  log->add_flag("-f,--follow", args->follow, "Go on until it ends");
  acts(log, show_log);
  auto* end = add(app, args, "cancel", "End a submitted job: as by Ctrl-C, and soon by force");
  end->add_option("id", args->id, "The job's id")->required()->check(CLI::Range(int64_t(1), INT64_MAX));
  acts(end, cancel);
}

}  // namespace sluice
