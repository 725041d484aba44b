// SPDX-License-Identifier: Apache-2.0
// The control plane, as the command, the session and Python see it: a coordinator, workers that join it, and clients.
// Cap'n Proto and KJ stay in the .cc files of this folder; each object below has a KJ thread of its own.
//
//   client (Session) --RPC--> Coordinator --RPC--> Worker ... each hosts the floor of its ranks
//        results, failures <---            <---
//
// Thread rule: as each class says. Destructors end their threads and connections.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/floor.h"
#include "launcher/cluster/store.h"

namespace sluice {

// ---- who may speak
// ---------------------------------------------------------------------------------------------------

struct Secret {
  std::array<uint8_t, 32> bytes{};
};
Secret make_secret();                         // from the system's generator
Secret load_secret(const std::string& path);  // 64 hex digits; throws Error: missing, readable by others, not a secret
std::string text_of(const Secret& secret);

struct Address {
  std::string host;
  int port = 0;
};
Address parse_address(const std::string& text);  // "host:7700", "[::1]:7700"; throws Error(usage)
std::string text_of(const Address& address);

struct Credentials {
  Address address;
  Secret secret;
};
// From SLUICE_CLUSTER and SLUICE_SECRET_FILE; nothing where neither is set; throws Error when one is missing or wrong.
std::optional<Credentials> cluster_of_environment();

// ---- the coordinator
// -------------------------------------------------------------------------------------------------

// What happened, for the launcher's messages and exit code; posted on the coordinator's thread, must only post.
struct ClusterEvent {
  enum Kind { joined, left, lost, run_started, run_failed } kind = joined;
  int worker = 0;    // its number, in the order of joining
  std::string host;  // the worker's label
  int64_t pid = 0;
  std::string text;  // why, one line or more
};

struct CoordinatorOptions {
  std::string listen = "127.0.0.1";  // an address of this machine
  int port = 0;                      // 0: any free one
  Secret secret;
  int silence_ms_max = 6000;  // a worker or client that says nothing for so long is lost
  std::function<void(const ClusterEvent&)> on_event;
  JobStore* store = nullptr;  // keeps and runs submitted jobs; null: they are refused. Outlives the coordinator
};

struct WorkerInfo {
  int number = 0;
  std::string host;
  int64_t pid = 0;
  int devices = 0;  // 0: any number of ranks
  int runs = 0;     // that it takes part in now
  int ranks = 0;    // that it hosts now, over all runs
};

class Coordinator {  // thread rule: any thread
 public:
  explicit Coordinator(const CoordinatorOptions& options);  // throws Error: the port is taken, no such address
  ~Coordinator();                                           // dismisses workers and clients
  int port() const;
  // True when so many workers are there; false when the time is over.
  bool wait_for_workers(int workers, std::chrono::milliseconds timeout);
  std::vector<WorkerInfo> workers() const;
  // Ends every run with this error, at its client too.
  void cancel_runs(const Error& error);
  // How the process of a worker ended, where whoever started it knows: "was killed by signal 9 (Killed)". It is then
  // what clients read; a little after the connection was lost is early enough.
  void worker_ended(const std::string& host, int64_t pid, const std::string& how);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// ---- a worker
// --------------------------------------------------------------------------------------------------------

struct WorkerOptions {
  Credentials to;
  std::string host;                  // its label; "": the machine's name
  std::string listen = "127.0.0.1";  // where its data connections are bound
  int devices = 0;                   // 0: any number of ranks
  int silence_ms_max = 6000;
};
// Serves until the coordinator dismisses it (returns 0) or is lost, or `stop` becomes readable (a descriptor; -1:
// none). Throws Error when it cannot join.
int run_worker(const WorkerOptions& options, int stop);

// ---- a client
// --------------------------------------------------------------------------------------------------------

struct RunRequest {
  const Plan* plan = nullptr;
  FloorOptions floor;                                        // of it: delay_seed and watchdog; workers choose the rest
  int threads = 0;                                           // of each device's team; 0: the workers choose
  std::string name;                                          // of the job, for messages; "": the plan's
  std::vector<std::pair<std::string, std::string>> plugins;  // path, hash: workers load the same
  std::function<void(const std::string&)> on_notice;         // whom or what it waits for; empty: to stderr
  std::function<void()> while_waiting;                       // called now and then until it runs; may throw
};

struct JobCall;
struct JobReply;

class Cluster {  // a connection; thread rule: any thread; a Runtime that it started: one client thread
 public:
  explicit Cluster(const Credentials& credentials);  // throws Error: not reached, refused
  ~Cluster();
  // Starts a plan on the workers. The Runtime keeps the connection alive. Throws Error: too few devices, a wrong
  // hash...
  std::unique_ptr<Runtime> start(const RunRequest& request);
  std::vector<WorkerInfo> workers();
  bool lost() const;  // for good: the coordinator is gone
  // Submitted jobs (store.h). Parts are uploaded from files in chunks; submission.bytes is set from these files.
  int64_t submit(Submission submission, const std::map<JobPart, std::string>& files);
  std::vector<JobStatus> jobs();
  JobBytes read_job(int64_t id, JobPart part, int64_t offset);  // at most a chunk
  void cancel_job(int64_t id);

 private:
  struct JobReply ask(const struct JobCall& call);  // jobs.h
  struct JobReply ask_checked(const struct JobCall& call);
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice
