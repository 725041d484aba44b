// SPDX-License-Identifier: Apache-2.0
// Inside of the spool: its records. spool.cc has what clients do with them, spool_keeper.cc the thread that runs jobs.
// Thread rule: everything with the mutex held, but for options and folder, which are constant.
#pragma once
#include <poll.h>

#include <mutex>
#include <thread>

#include "base/error.h"
#include "launcher/spool.h"

namespace sluice {

const char* file_of(JobPart part);  // its name in the job's folder
bool is_over(JobState state);

struct Record {
  JobStatus status;
  int64_t steps = 0, bytes = 0;
  bool stop_asked = false;
  Deadline kill_at = Deadline::max();
  std::unique_ptr<Process> process;  // of a running one
  Handle log;
  std::string line, error;  // of the output: the line that has begun, and the last one that was an error
};

struct Spool::Impl {
  SpoolOptions options;
  std::string folder;
  Handle wake;
  std::mutex mutex;  // for all below
  std::map<int64_t, Record> records;
  std::map<int64_t, int64_t> uploads;  // what is declared of each
  int64_t next_id = 1;
  bool stopping = false;
  std::thread keeper;

  explicit Impl(const SpoolOptions& from);
  ~Impl();

  std::string place(int64_t id) const { return fmt::format("{}/{}", folder, id); }
  std::string path(int64_t id, JobPart part) const { return place(id) + "/" + file_of(part); }
  Record& find(int64_t id);

  int64_t admit(const Submission& submission);
  void forget(int64_t id);
  void make_room(int64_t bytes);
  int64_t needed(int64_t id);

  // The keeper's; all with the mutex held but keep().
  void keep();
  int watch(std::vector<pollfd>& watched);
  void start_what_fits();
  void run(int64_t id, Record& record);
  void take_output(Record& record);
  void take_line(Record& record, char c);
  void take_end(int64_t id, Record& record);
  void stop(Record& record);
};

}  // namespace sluice
