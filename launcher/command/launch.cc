// SPDX-License-Identifier: Apache-2.0
#include "launcher/command/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "launcher/cluster/cluster.h"
#include "launcher/command/command.h"
#include "launcher/events.h"
#include "launcher/guard.h"
#include "launcher/lines.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto farewell = 1500ms;       // for workers to end once something has failed
constexpr auto orderly_farewell = 10s;  // once all went well
constexpr int reads_max = 16;           // in a row, of one worker: together more than a pipe holds
constexpr auto last_words = 500ms;      // from a lost connection to the end of its process

struct Worker {
  Process process;
  int source = 0;  // of lines
  Handle raw{};    // its log file
  bool joined = false, gone = false, seen_ended = false;
  std::string host = "?";
  std::string lost;  // why the coordinator gave it up
  Deadline lost_until = Deadline::max();
};

// The first thing that went wrong; what follows from it is not told.
struct Cause {
  std::string text, next;
  int code = 1;
};

class Launcher {
 public:
  explicit Launcher(const Launch& launch);
  int run();

 private:
  void start_worker();
  void start_client();
  void wait();
  void look();
  void take_signals();
  void take_events();
  void take_output(Worker& worker);
  void look_at_workers();
  void look_at_client();
  void give_up(size_t worker);
  Cause missing() const;
  void note_client();
  void fail(Cause cause);
  void end_workers();
  int report();
  std::string name_of(size_t worker) const;

  const Launch& launch_;
  Guard guard_;
  std::set<pid_t> spared_ = children();
  Signals signals_{SIGINT, SIGTERM, SIGHUP};
  Handle secret_file_;
  Events<ClusterEvent> events_;
  std::unique_ptr<Coordinator> coordinator_;
  Lines lines_;
  std::vector<Worker> workers_;
  std::optional<Process> client_;
  std::map<std::string, std::string> variables_;  // of children
  Deadline join_until_, end_until_ = Deadline::max();
  std::optional<Cause> cause_;
  std::string client_end_;  // how the client ended after the cause
  int signal_ = 0;          // the first one that came to us
  bool client_group_ = false, client_killed_ = false, client_seen_ended_ = false, ending_ = false;
};

Launcher::Launcher(const Launch& launch)
    : launch_(launch),
      lines_([](const std::string& line) { fmt::print(stderr, "{}", line); },
             {.dedup = launch.dedup, .plain = isatty(STDERR_FILENO) == 0}),
      join_until_(Clock::now() + std::chrono::milliseconds(launch.join_ms_max)) {
  adopt_orphans();
  Secret secret = make_secret();
  secret_file_ = make_nameless_file(text_of(secret));
  CoordinatorOptions options;
  options.secret = secret;
  options.on_event = [this](const ClusterEvent& event) { events_.post(event); };
  coordinator_ = std::make_unique<Coordinator>(options);
  variables_ = {{"SLUICE_CLUSTER", fmt::format("127.0.0.1:{}", coordinator_->port())},
                {"SLUICE_SECRET_FILE", path_of(secret_file_)}};
  if (!launch.log_dir.empty()) std::filesystem::create_directories(launch.log_dir);
}

void Launcher::start_worker() {
  size_t number = workers_.size();
  ProcessSpec spec{.words = {own_path(), "worker"}, .variables = variables_, .captured = true, .interruptible = false};
  Worker worker{Process(spec)};
  guard_.add_group(worker.process.pid());
  worker.source = lines_.add_source(fmt::format("{}", number));
  if (!launch_.log_dir.empty()) {
    std::string path = fmt::format("{}/worker-{}.log", launch_.log_dir, number);
    worker.raw = Handle(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (worker.raw.get() < 0) throw Error(Code::io, fmt::format("cannot be written: {}", std::strerror(errno)), {path});
  }
  workers_.push_back(std::move(worker));
}

// In the terminal's foreground group the client shares ours: else it could not read what is typed. Then the terminal
// gives Ctrl-C to both of us.
void Launcher::start_client() {
  ProcessSpec spec = launch_.client;
  for (auto& [name, value] : variables_) spec.variables[name] = value;
  spec.own_group = !(isatty(STDIN_FILENO) != 0 && tcgetpgrp(STDIN_FILENO) == getpgrp());
  client_.emplace(spec);
  client_group_ = spec.own_group;
  if (client_group_) guard_.add_group(client_->pid());
}

int Launcher::run() {
  for (int i = 0; i < launch_.workers; ++i) start_worker();
  while (!ending_) {
    wait();
    look();
  }
  end_workers();
  note_client();
  client_.reset();
  workers_.clear();
  kill_children_but(spared_);
  lines_.flush();
  return report();
}

// Until something happens, or a deadline.
void Launcher::wait() {
  std::vector<pollfd> watched{{signals_.handle(), POLLIN, 0}, {events_.handle(), POLLIN, 0}};
  auto until = client_ ? end_until_ : std::min(end_until_, join_until_);
  // A process may end between the last look and this one: what is seen here first is looked at before anything is
  // waited for.
  auto watch = [&](Process& process, bool& seen_ended) {
    if (!process.ended())
      watched.push_back({process.handle(), POLLIN, 0});
    else if (!std::exchange(seen_ended, true))
      until = Clock::now();
  };
  for (auto& worker : workers_) {
    watch(worker.process, worker.seen_ended);
    if (worker.process.output() >= 0) watched.push_back({worker.process.output(), POLLIN, 0});
    until = std::min(until, worker.lost_until);
  }
  if (client_) watch(*client_, client_seen_ended_);
  if (auto told = lines_.tick(Clock::now())) until = std::min(until, *told);
  int ms = -1;
  if (until != Deadline::max())
    ms = int(std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count()));
  ::poll(watched.data(), nfds_t(watched.size()), ms);
}

void Launcher::look() {
  take_signals();
  take_events();
  for (auto& worker : workers_) take_output(worker);
  look_at_workers();
  look_at_client();
}

void Launcher::take_signals() {
  while (auto signal = signals_.take()) {
    if (signal_ != 0) {  // the second one: at once
      end_until_ = Clock::now();
      continue;
    }
    signal_ = signal->number;
    if (!client_) ending_ = true;
    bool has_it = signal->from_terminal && !client_group_;
    if (client_ && !has_it) client_->send(signal->number);
    end_until_ = std::min(end_until_, Clock::now() + std::chrono::milliseconds(launch_.grace_ms));
  }
}

void Launcher::take_events() {
  for (auto& event : events_.take()) {
    auto at = std::find_if(workers_.begin(), workers_.end(), [&](auto& w) { return w.process.pid() == event.pid; });
    if (at == workers_.end()) continue;
    at->host = event.host;
    if (event.kind == ClusterEvent::joined) at->joined = true;
    if (event.kind == ClusterEvent::lost || event.kind == ClusterEvent::left) {
      at->lost = event.text;
      at->lost_until = Clock::now() + last_words;
    }
  }
  bool all = std::all_of(workers_.begin(), workers_.end(), [](auto& w) { return w.joined; });
  if (all && !client_ && !cause_ && !ending_) start_client();
}

void Launcher::take_output(Worker& worker) {
  char buffer[16 << 10];
  ssize_t got = 1;
  for (int i = 0; i < reads_max && worker.process.output() >= 0 && got > 0; ++i) {
    got = read(worker.process.output(), buffer, sizeof buffer);
    if (got > 0) {
      lines_.add(worker.source, {buffer, size_t(got)}, Clock::now());
      if (worker.raw.get() >= 0 && write(worker.raw.get(), buffer, size_t(got)) < 0) worker.raw.close();
    } else if (got == 0) {
      lines_.end(worker.source, Clock::now());
      worker.process.close_output();
    }
  }
}

std::string Launcher::name_of(size_t worker) const {
  auto& w = workers_[worker];
  return fmt::format("worker {} of {} (host {}, pid {})", worker, workers_.size(), w.host, w.process.pid());
}

// What a worker's end, or its silence, means while nothing else has gone wrong.
void Launcher::look_at_workers() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    auto& worker = workers_[i];
    if (auto& ended = worker.process.ended(); ended && !worker.gone) {
      worker.gone = true;
      worker.lost_until = Deadline::max();
      take_output(worker);
      guard_.forget_group(worker.process.pid());
      if (worker.joined) coordinator_->worker_ended(worker.host, worker.process.pid(), ended->text());
      std::string next = ended->signal == SIGKILL ? "who killed it? short of memory, the kernel does (dmesg)" : "";
      fail({name_of(i) + " " + ended->text(), next, ended->exit_code() == 0 ? exit_failed : ended->exit_code()});
    } else if (Clock::now() >= worker.lost_until) {
      give_up(i);
    }
  }
  if (!client_ && !cause_ && Clock::now() >= join_until_) fail(missing());
}

void Launcher::give_up(size_t i) {
  auto& worker = workers_[i];
  worker.lost_until = Deadline::max();
  bool stopped = worker.process.stopped();
  fail({fmt::format("{} {}: {}", name_of(i), stopped ? "is stopped (SIGSTOP, or a debugger)" : "is lost", worker.lost),
        stopped ? "" : "see what it printed above", exit_failed});
  if (stopped) coordinator_->worker_ended(worker.host, worker.process.pid(), "is stopped");
  worker.process.send_to_group(SIGKILL);
}

Cause Launcher::missing() const {
  std::string who;
  size_t there = 0;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].joined)
      ++there;
    else
      who += fmt::format("{}{} (pid {})", who.empty() ? "" : ", ", i, workers_[i].process.pid());
  }
  return {fmt::format("{} of {} workers joined within {} s; missing: {}", there, workers_.size(),
                      launch_.join_ms_max / 1000, who),
          "see what they printed above; a busy machine may need --join-seconds", exit_rendezvous};
}

void Launcher::look_at_client() {
  if (client_ && client_->ended()) {
    // A client that fails because of a lost worker is not the cause.
    auto waiting = [](auto& w) { return w.lost_until != Deadline::max(); };
    if (client_->ended()->exit_code() != 0 && std::any_of(workers_.begin(), workers_.end(), waiting)) return;
    ending_ = true;
    auto& ended = *client_->ended();
    if (client_group_) guard_.forget_group(client_->pid());
    std::string text = fmt::format("{} (pid {}) {}", launch_.title, client_->pid(), ended.text());
    if (ended.exit_code() != 0) fail({ended.signal == 0 ? "" : text, "", ended.exit_code()});
  } else if (Clock::now() >= end_until_) {
    end_until_ = Deadline::max();
    if (!client_) {
      ending_ = true;
    } else {
      client_killed_ = true;
      client_->send_to_group(SIGKILL);
    }
  }
}

// What became of the client, kept apart from the cause.
void Launcher::note_client() {
  if (!client_ || !client_->ended() || !cause_ || cause_->text.starts_with(launch_.title)) return;
  client_end_ = client_killed_ ? fmt::format("{} was killed by us after that", launch_.title)
                               : fmt::format("{} {} after that", launch_.title, client_->ended()->text());
}

void Launcher::fail(Cause cause) {
  if (cause_ || signal_ != 0) return;
  cause_ = std::move(cause);
  end_until_ = std::min(end_until_, Clock::now() + std::chrono::milliseconds(launch_.grace_ms));
  if (!client_) ending_ = true;
}

// Everything is over: the coordinator dismisses the workers; who does not go is killed.
void Launcher::end_workers() {
  bool well = !cause_ && signal_ == 0;
  coordinator_.reset();
  auto until = Clock::now() + (well ? orderly_farewell : farewell);
  auto runs = [](Worker& w) { return !w.process.ended(); };
  while (std::any_of(workers_.begin(), workers_.end(), runs) && Clock::now() < until) {
    end_until_ = until;
    wait();
    if (signals_.take()) until = Clock::now();
    for (auto& worker : workers_) take_output(worker);
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    auto& worker = workers_[i];
    take_output(worker);
    auto& ended = worker.process.ended();
    if (well && !ended) fail({name_of(i) + " did not end when all was done", "", exit_failed});
    if (well && ended && ended->exit_code() != 0)
      fail({fmt::format("{} {}, when {} was done", name_of(i), ended->text(), launch_.title), "", ended->exit_code()});
  }
}

int Launcher::report() {
  std::fflush(stdout);
  if (signal_ != 0) {
    fmt::print(stderr, "sluice: stopped by signal {} ({}){}\n", signal_, strsignal(signal_),
               client_killed_ ? fmt::format("; {} did not end by itself and was killed", launch_.title) : "");
    return 128 + signal_;
  }
  if (!cause_) return exit_ok;
  if (cause_->text.empty()) return cause_->code;  // the client has told it
  fmt::print(stderr, "sluice: error: {}\n", cause_->text);
  if (!client_end_.empty()) fmt::print(stderr, "  {}\n", client_end_);
  if (!cause_->next.empty()) fmt::print(stderr, "  next: {}\n", cause_->next);
  return cause_->code;
}

}  // namespace

int launch(const Launch& launch) { return Launcher(launch).run(); }

}  // namespace sluice
