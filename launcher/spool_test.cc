// SPDX-License-Identifier: Apache-2.0
#include "launcher/spool.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// A spool whose "jobs" are shell scripts: the job's file is the script; $result is where its result goes.
class SpoolTest : public ::testing::Test {
 protected:
  SpoolTest() {
    options.command = [](const SpooledJob& job) {
      return ProcessSpec{.words = {"/bin/sh", job.job},
                         .variables = {{"weights", job.weights}, {"result", job.result}, {"config", job.config}}};
    };
    options.room = [this] { return Room{devices, taken, any}; };
    options.grace_ms = 300;
  }

  void start() {
    spool = std::make_unique<Spool>(options);
    spool->start();
  }

  int64_t submit(const std::string& script, const std::string& config = "", const std::string& name = "job") {
    std::map<JobPart, std::string> parts{{JobPart::job, script}, {JobPart::weights, "w"}};
    if (!config.empty()) parts[JobPart::config] = config;
    Submission submission{name, 0, {}};
    for (auto& [part, text] : parts) submission.bytes[part] = int64_t(text.size());
    auto upload = spool->open(submission);
    for (auto& [part, text] : parts) upload->write(part, std::as_bytes(std::span(text)));
    return upload->finish();
  }

  JobStatus status(int64_t id) {
    for (auto& job : spool->jobs())
      if (job.id == id) return job;
    return {};
  }
  template <class Holds>
  JobStatus wait(int64_t id, Holds holds) {
    auto until = std::chrono::steady_clock::now() + 20s;
    while (!holds(status(id)) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return status(id);
  }
  JobStatus wait_end(int64_t id) {
    return wait(id, [](const JobStatus& s) { return s.state != JobState::queued && s.state != JobState::running; });
  }
  JobStatus wait_for(int64_t id, JobState state) {
    return wait(id, [&](const JobStatus& s) { return s.state == state; });
  }
  JobStatus wait_for_log(int64_t id) {
    return wait(id, [](const JobStatus& s) { return s.log_bytes > 0; });
  }
  std::string log(int64_t id) { return spool->read(id, JobPart::log, 0, 1 << 20).bytes; }

  std::atomic<int64_t> devices{4}, taken{0};
  std::atomic<bool> any{false};
  SpoolOptions options;
  std::unique_ptr<Spool> spool;
};

std::string mesh(int devices) { return "[mesh]\naxes = { dp = " + std::to_string(devices) + " }\n"; }

TEST_F(SpoolTest, RunsAJob) {
  start();
  int64_t id = submit("echo hello; cat $weights; cat $config; printf result > $result", mesh(2), "net \x1b[31m.job");
  JobStatus ended = wait_end(id);
  EXPECT_EQ(ended.state, JobState::done) << ended.why;
  EXPECT_EQ(ended.name, "net ?[31m.job");
  EXPECT_EQ(ended.devices, 2);
  EXPECT_GE(ended.ended_s, ended.submitted_s);
  EXPECT_EQ(log(id), "hello\nw" + mesh(2));
  EXPECT_EQ(ended.log_bytes, int64_t(log(id).size()));
  EXPECT_EQ(spool->read(id, JobPart::result, 0, 100).bytes, "result");
  JobBytes middle = spool->read(id, JobPart::result, 2, 3);
  EXPECT_EQ(middle.bytes, "sul");
  EXPECT_FALSE(middle.last);
  EXPECT_TRUE(spool->read(id, JobPart::result, 5, 3).last);
}

TEST_F(SpoolTest, TellsWhyAJobFailed) {
  start();
  JobStatus ended = wait_end(submit("echo 'sluice: error: no such op'; echo '  next: x'; exit 3"));
  EXPECT_EQ(ended.state, JobState::failed);
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_EQ(ended.why, "ended with code 3: no such op");
  ended = wait_end(submit("kill -9 $$"));
  EXPECT_EQ(ended.exit_code, 137);
  EXPECT_EQ(ended.why, "was killed by signal 9 (Killed)");
}

TEST_F(SpoolTest, QueuesInOrderUntilDevicesAreFree) {
  start();
  std::string gate = spool->folder() + "/gate";
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  int64_t first = submit("echo; read x < " + gate, mesh(3));
  wait_for(first, JobState::running);
  int64_t second = submit("true", mesh(2)), third = submit("true", mesh(1));
  JobStatus waits = wait(second, [](const JobStatus& s) { return !s.why.empty(); });
  EXPECT_EQ(waits.state, JobState::queued);
  EXPECT_EQ(waits.why, "waits for 2 of 4 devices; 3 are taken");
  EXPECT_EQ(status(third).state, JobState::queued);  // it would fit, and does not overtake
  EXPECT_EQ(wait(third, [](const JobStatus& s) { return !s.why.empty(); }).why, "after job 2");
  std::ofstream(gate) << "\n";
  for (int64_t id : {first, second, third}) EXPECT_EQ(wait_end(id).state, JobState::done);
}

TEST_F(SpoolTest, WaitsForOthersRunsAndForWorkers) {
  devices = 0;
  start();
  int64_t id = submit("true");
  EXPECT_EQ(wait(id, [](const JobStatus& s) { return !s.why.empty(); }).why, "waits for 1 of 0 devices; 0 are taken");
  devices = 1, taken = 1;
  spool->look();
  EXPECT_EQ(wait(id, [](const JobStatus& s) { return s.why.ends_with("1 are taken"); }).state, JobState::queued);
  taken = 0;  // nobody tells the spool
  EXPECT_EQ(wait_end(id).state, JobState::done);
  devices = 0, any = true;
  EXPECT_EQ(wait_end(submit("true", mesh(64))).state, JobState::done);
}

TEST_F(SpoolTest, Cancels) {
  start();
  int64_t polite = submit("trap 'echo saved; exit 0' INT; echo; while :; do sleep 0.01; done", mesh(2));
  int64_t deaf = submit("trap '' INT; echo $$; while :; do sleep 0.01; done", mesh(2));
  int64_t queued = submit("true");
  wait_for_log(polite), wait_for_log(deaf);
  for (int64_t id : {polite, deaf, queued}) spool->cancel(id);
  for (int64_t id : {polite, deaf, queued}) EXPECT_EQ(wait_end(id).state, JobState::cancelled);
  EXPECT_EQ(log(polite), "\nsaved\n");
  EXPECT_EQ(status(polite).exit_code, 0);
  EXPECT_EQ(status(deaf).exit_code, 137);
  EXPECT_EQ(kill(std::stoi(log(deaf)), 0), -1);
  spool->cancel(polite);  // it stays as it is
  EXPECT_THROW(spool->cancel(99), Error);
}

TEST_F(SpoolTest, RefusesWhatIsTooMuch) {
  options.upload_bytes_max = 10;
  start();
  auto open = [&](std::map<JobPart, int64_t> bytes) { return spool->open({"x", 0, std::move(bytes)}); };
  EXPECT_THROW(open({{JobPart::job, 1}}), Error);  // no weights
  EXPECT_THROW(open({{JobPart::job, 6}, {JobPart::weights, 5}}), Error);
  EXPECT_THROW(open({{JobPart::job, 1}, {JobPart::weights, INT64_MAX}}), Error);
  EXPECT_THROW(open({{JobPart::job, 1}, {JobPart::weights, -1}}), Error);
  EXPECT_THROW(open({{JobPart::job, 1}, {JobPart::weights, 1}, {JobPart::log, 1}}), Error);
  EXPECT_THROW(open({{JobPart::job, 1}, {JobPart::weights, 1}, {JobPart(77), 1}}), Error);
  auto upload = open({{JobPart::job, 2}, {JobPart::weights, 2}});
  std::byte bytes[3]{};
  upload->write(JobPart::job, std::span(bytes, 1));
  EXPECT_THROW(upload->write(JobPart::job, std::span(bytes, 2)), Error);
  EXPECT_THROW(upload->write(JobPart::config, std::span(bytes, 1)), Error);
  EXPECT_THROW(upload->finish(), Error);
  upload->write(JobPart::job, std::span(bytes, 1));
  upload->write(JobPart::weights, std::span(bytes, 2));
  EXPECT_GT(upload->finish(), 0);
  EXPECT_THROW(upload->finish(), Error);
  EXPECT_THROW(upload->write(JobPart::job, {}), Error);
}

TEST_F(SpoolTest, ForgetsAnUploadThatIsGivenUp) {
  start();
  auto count = [&] { return std::distance(fs::directory_iterator(spool->folder()), fs::directory_iterator()); };
  auto upload = spool->open({"x", 0, {{JobPart::job, 1}, {JobPart::weights, 1}}});
  EXPECT_EQ(count(), 1);
  upload.reset();
  EXPECT_EQ(count(), 0);
  EXPECT_THROW(submit("true", "[mesh]\naxis = 3\n"), Error);  // a wrong config
  EXPECT_EQ(count(), 0);
  EXPECT_TRUE(spool->jobs().empty());
}

TEST_F(SpoolTest, NamesAWrongConfigWithoutItsPath) {
  start();
  try {
    submit("true", "[mesh]\naxis = 3\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("the config:2: "), 0u) << error.what();
  }
}

TEST_F(SpoolTest, ForgetsOldJobsForNewOnes) {
  options.jobs_max = 3;
  devices = 0, any = true;
  start();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(wait_end(submit("true")).state, JobState::done);
  any = false;
  submit("true");
  EXPECT_EQ(spool->jobs().front().id, 2);
  EXPECT_THROW(log(1), Error);
  submit("true"), submit("true");
  EXPECT_THROW(submit("true"), Error);  // all wait
}

TEST_F(SpoolTest, BoundsTheLog) {
  options.log_bytes_max = 1000;
  start();
  JobStatus ended = wait_end(submit("yes | head -c 1000000; echo 'sluice: error: late' >&2; exit 1"));
  EXPECT_EQ(ended.log_bytes, 1000);
  EXPECT_EQ(ended.why, "ended with code 1: late");
}

TEST_F(SpoolTest, ReadsOnlyWhatThereIs) {
  start();
  int64_t id = submit("echo; exec sleep 1000");
  wait_for_log(id);
  EXPECT_FALSE(spool->read(id, JobPart::log, 1, 10).last);  // more may come
  EXPECT_THROW(spool->read(id, JobPart::log, 2, 10), Error);
  EXPECT_THROW(spool->read(id, JobPart::log, -1, 10), Error);
  EXPECT_EQ(spool->read(id, JobPart::log, 0, -5).bytes, "");
  EXPECT_THROW(spool->read(id, JobPart::weights, 0, 10), Error);
  EXPECT_THROW(spool->read(7, JobPart::log, 0, 10), Error);
}

TEST_F(SpoolTest, LeavesNothing) {
  start();
  std::string folder = spool->folder();
  struct stat info;
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  int64_t id = submit("trap '' INT; sleep 1000 & echo $!; wait; wait", mesh(4));
  int64_t queued = submit("true");
  wait_for_log(id);
  int grandchild = std::stoi(log(id));
  spool->stop();
  EXPECT_EQ(status(id).state, JobState::cancelled);
  EXPECT_EQ(status(queued).state, JobState::cancelled);
  spool.reset();
  auto until = std::chrono::steady_clock::now() + 20s;
  auto is_gone = [&] {  // killed with its group; whoever adopted it reaps it
    std::ifstream in("/proc/" + std::to_string(grandchild) + "/stat");
    std::string text((std::istreambuf_iterator<char>(in)), {});
    return text.empty() || text.find(") Z ") != text.npos;
  };
  while (!is_gone() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_TRUE(is_gone());
  EXPECT_FALSE(fs::exists(folder));
}

}  // namespace
}  // namespace sluice
