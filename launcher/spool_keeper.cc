// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <utility>

#include "launcher/spool_impl.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int look_ms = 250;  // how often a queue looks for room: other clients' runs end without a word to us
constexpr size_t error_bytes_max = 500;
constexpr int reads_max = 16;  // in a row, of one job: together more than a pipe holds

int64_t size_of_file(const std::string& path) {
  std::error_code error;
  auto size = fs::file_size(path, error);
  return error ? 0 : int64_t(size);
}

}  // namespace

void Spool::Impl::keep() {
  std::vector<pollfd> watched;
  std::unique_lock lock(mutex);
  while (true) {
    for (auto& [id, record] : records) {
      if (stopping) record.stop_asked = true;
      if (record.stop_asked && !is_over(record.status.state)) stop(record);
      if (record.process) take_output(record), take_end(id, record);
    }
    if (!stopping) start_what_fits();
    int wait_ms = watch(watched);
    if (stopping && watched.size() == 1) return;
    lock.unlock();
    ::poll(watched.data(), nfds_t(watched.size()), wait_ms);
    eventfd_t ignored;
    eventfd_read(wake.get(), &ignored);
    lock.lock();
  }
}

// What to wait for, and how long at most; -1: for ever.
int Spool::Impl::watch(std::vector<pollfd>& watched) {
  watched = {{wake.get(), POLLIN, 0}};
  auto until = Deadline::max();
  bool queued = false;
  for (auto& [id, record] : records) {
    queued |= record.status.state == JobState::queued;
    if (!record.process) continue;
    watched.push_back({record.process->handle(), POLLIN, 0});
    if (record.process->output() >= 0) watched.push_back({record.process->output(), POLLIN, 0});
    until = std::min(until, record.kill_at);
  }
  if (until == Deadline::max()) return queued ? look_ms : -1;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return int(std::clamp<int64_t>(left, 0, look_ms));
}

// Strictly in order: a large job is not overtaken for ever by small ones.
void Spool::Impl::start_what_fits() {
  Room room = options.room();
  int64_t ours = 0;
  for (auto& [id, record] : records)
    if (record.process) ours += record.status.devices;
  int64_t taken = std::max(ours, room.taken);  // a job that has just begun is not yet among those taken
  for (auto& [id, record] : records) {
    auto& status = record.status;
    if (status.state != JobState::queued) continue;
    if (!room.any && taken + status.devices > room.devices) {
      status.why = fmt::format("waits for {} of {} devices; {} are taken", status.devices, room.devices, taken);
      for (auto& [later, waiting] : records)
        if (later > id && waiting.status.state == JobState::queued)
          waiting.status.why = fmt::format("after job {}", id);
      return;
    }
    run(id, record);
    taken += status.devices;
  }
}

void Spool::Impl::run(int64_t id, Record& record) {
  std::string config = path(id, JobPart::config);
  SpooledJob job{id,
                 record.steps,
                 path(id, JobPart::job),
                 fs::exists(config) ? config : "",
                 path(id, JobPart::weights),
                 path(id, JobPart::result)};
  record.status.why.clear();
  try {
    record.log = Handle(::open(path(id, JobPart::log).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ProcessSpec spec = options.command(job);
    spec.captured = true;
    record.process = std::make_unique<Process>(spec);
    record.status.state = JobState::running;
    if (options.guard) options.guard->add_group(record.process->pid());
  } catch (const std::exception& error) {
    record.status.state = JobState::failed;
    record.status.exit_code = 1;
    record.status.why = error.what();
    record.status.ended_s = std::time(nullptr);
  }
}

void Spool::Impl::take_output(Record& record) {
  char buffer[16 << 10];
  int from = record.process->output();
  if (from < 0) return;
  ssize_t got = 1;
  for (int i = 0; i < reads_max && (got = ::read(from, buffer, sizeof buffer)) > 0; ++i) {
    int64_t room = options.log_bytes_max - record.status.log_bytes;
    auto kept = std::min<int64_t>(got, room);
    if (kept > 0 && ::write(record.log.get(), buffer, size_t(kept)) == kept) record.status.log_bytes += kept;
    for (char c : std::string_view(buffer, size_t(got))) take_line(record, c);
  }
  if (got == 0) record.process->close_output();
}

// Remembers the last line that says what went wrong.
void Spool::Impl::take_line(Record& record, char c) {
  constexpr std::string_view mark = "sluice: error: ";
  if (c != '\n') {
    if (record.line.size() < error_bytes_max) record.line += c;
    return;
  }
  if (record.line.starts_with(mark)) record.error = record.line.substr(mark.size());
  record.line.clear();
}

void Spool::Impl::take_end(int64_t id, Record& record) {
  auto& ended = record.process->ended();
  if (!ended) return;
  take_output(record);  // what was still in the pipe
  if (options.guard) options.guard->forget_group(record.process->pid());
  auto& status = record.status;
  status.exit_code = ended->exit_code();
  status.state = record.stop_asked ? JobState::cancelled : status.exit_code == 0 ? JobState::done : JobState::failed;
  if (status.state == JobState::failed) status.why = ended->text() + (record.error.empty() ? "" : ": " + record.error);
  status.result_bytes = size_of_file(path(id, JobPart::result));
  status.ended_s = std::time(nullptr);
  record.process.reset();
  record.log.close();
}

// Asks once, and insists when the grace is over.
void Spool::Impl::stop(Record& record) {
  if (!record.process) {
    record.status.state = JobState::cancelled;
    record.status.why = stopping ? "the coordinator ended" : "";
    record.status.ended_s = std::time(nullptr);
  } else if (record.kill_at == Deadline::max()) {
    record.process->send(SIGINT);
    record.kill_at = Clock::now() + std::chrono::milliseconds(options.grace_ms);
  } else if (Clock::now() >= record.kill_at) {
    record.process->send_to_group(SIGKILL);
  }
}

}  // namespace sluice
