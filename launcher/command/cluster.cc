// SPDX-License-Identifier: Apache-2.0
// `sluice coordinator` and `sluice worker`: a standing cluster.
#include "launcher/cluster/cluster.h"

#include <fmt/format.h>
#include <poll.h>

#include <csignal>
#include <filesystem>

#include "base/error.h"
#include "launcher/command/command.h"
#include "launcher/events.h"
#include "launcher/guard.h"
#include "launcher/reach.h"
#include "launcher/spool.h"

namespace sluice {
namespace {

// ---- worker --------------------------------------------------------------------------------------------------------

struct WorkerArguments {
  std::string join, secret, host, listen = "127.0.0.1";
  int devices = 0;
};

int serve(const WorkerArguments& args) {
  struct sigaction interrupt {};
  sigaction(SIGINT, nullptr, &interrupt);
  bool deaf = interrupt.sa_handler == SIG_IGN;  // under `sluice run -n`: a Ctrl-C is the script's
  Signals signals(deaf ? std::initializer_list<int>{SIGTERM} : std::initializer_list<int>{SIGTERM, SIGINT});
  WorkerOptions options{.to = credentials_of(args.join, args.secret), .host = args.host, .listen = args.listen};
  options.devices = args.devices;
  return run_worker(options, signals.handle());
}

// ---- coordinator ---------------------------------------------------------------------------------------------------

struct CoordinatorArguments {
  std::string listen = "127.0.0.1", secret;
  int port = 7700;
  bool new_secret = false;
  int64_t upload_bytes_max = SpoolOptions{}.upload_bytes_max;
};

void tell(const ClusterEvent& event) {
  std::string who = fmt::format("worker {} (host {}, pid {})", event.worker, event.host, event.pid);
  switch (event.kind) {
    case ClusterEvent::joined: fmt::print(stderr, "{} joined\n", who); break;
    case ClusterEvent::left: fmt::print(stderr, "{} left\n", who); break;
    case ClusterEvent::lost: fmt::print(stderr, "{} is lost: {}\n", who, event.text); break;
    case ClusterEvent::run_started: fmt::print(stderr, "a run started: {}\n", event.text); break;
    case ClusterEvent::run_failed: fmt::print(stderr, "a run failed: {}\n", event.text); break;
  }
}

Room room_of(const std::vector<WorkerInfo>& workers) {
  Room room;
  for (auto& worker : workers) {
    room.devices += worker.devices;
    room.taken += worker.ranks;
    room.any |= worker.devices == 0;
  }
  return room;
}

// A submitted job is a client like any other: the same command, told where its cluster is.
ProcessSpec command_of(const SpooledJob& job, const std::string& cluster, const std::string& secret) {
  ProcessSpec spec;
  spec.words = {own_path(), "run", job.job, "--weights", job.weights, "--save", job.result};
  if (!job.config.empty()) spec.words.insert(spec.words.end(), {"--config", job.config});
  if (job.steps > 0) spec.words.insert(spec.words.end(), {"--steps", std::to_string(job.steps)});
  spec.variables = {{"SLUICE_CLUSTER", cluster}, {"SLUICE_SECRET_FILE", secret}};
  return spec;
}

// Where this machine's own processes reach it.
std::string near_address(const std::string& listen, int port) {
  std::string host = listen == "0.0.0.0" ? "127.0.0.1" : listen == "::" ? "::1" : listen;
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

int coordinate(const CoordinatorArguments& args) {
  if (args.secret.empty())
    throw Error(Code::usage, "a coordinator needs a secret", {},
                "give --secret FILE, with --new-secret the first time");
  Guard guard;
  Signals signals({SIGTERM, SIGINT, SIGHUP});
  if (args.new_secret) write_secret(make_secret(), args.secret);
  Secret secret = load_secret(args.secret);
  Handle secret_file = make_nameless_file(text_of(secret));  // that of a job outlives the named one
  Events<ClusterEvent> events;
  std::unique_ptr<Coordinator> coordinator;
  std::string cluster;
  SpoolOptions spooling;
  spooling.upload_bytes_max = args.upload_bytes_max;
  spooling.guard = &guard;
  spooling.room = [&] { return room_of(coordinator->workers()); };
  spooling.command = [&](const SpooledJob& job) { return command_of(job, cluster, path_of(secret_file)); };
  Spool spool(spooling);
  CoordinatorOptions options{.listen = args.listen, .port = args.port, .secret = secret};
  options.on_event = [&](const ClusterEvent& event) { events.post(event); };
  options.store = &spool;
  coordinator = std::make_unique<Coordinator>(options);
  cluster = near_address(args.listen, coordinator->port());
  spool.start();
  fmt::print("sluice: coordinator at {}\n", cluster);
  std::fflush(stdout);
  while (!signals.take()) {
    pollfd watched[] = {{signals.handle(), POLLIN, 0}, {events.handle(), POLLIN, 0}};
    ::poll(watched, 2, -1);
    for (auto& event : events.take()) tell(event), spool.look();
  }
  spool.stop();
  coordinator.reset();
  return exit_ok;
}

}  // namespace

void add_cluster(CLI::App& app, Action& action) {
  auto args = std::make_shared<CoordinatorArguments>();
  auto* sub = app.add_subcommand("coordinator", "Hold a standing cluster together, and run submitted jobs on it");
  sub->add_option("--listen", args->listen, "The address of this machine to listen on")->capture_default_str();
  sub->add_option("--port", args->port, "0: any free one")->check(CLI::Range(0, 65535))->capture_default_str();
  sub->add_option("--secret", args->secret, "The file with the secret that workers and clients prove to know");
  sub->add_flag("--new-secret", args->new_secret, "Make that file, with a new secret");
  sub->add_option("--upload-bytes-max", args->upload_bytes_max, "How large a submitted job may be, weights included")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 50))
      ->capture_default_str();
  sub->callback([args, &action] { action = [args] { return coordinate(*args); }; });

  auto serving = std::make_shared<WorkerArguments>();
  auto* worker = app.add_subcommand("worker", "Run ranks for a coordinator");
  worker->add_option("--join", serving->join, "The coordinator's HOST:PORT; else SLUICE_CLUSTER");
  worker->add_option("--secret", serving->secret, "The file with its secret; else SLUICE_SECRET_FILE");
  worker->add_option("--host", serving->host, "The label of this host: workers of one share memory; else its name");
  worker->add_option("--devices", serving->devices, "How many ranks it takes; 0: any number")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  worker->add_option("--listen", serving->listen, "The address for data between hosts")->capture_default_str();
  worker->callback([serving, &action] { action = [serving] { return reaching([&] { return serve(*serving); }); }; });
}

}  // namespace sluice
