// SPDX-License-Identifier: Apache-2.0
// `sluice run -n N` as its user meets it: equal results, one clear cause, nothing left.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "checkpoint/safetensors.h"
#include "launcher/cluster/cluster.h"
#include "tests/job_files.h"
#include "tests/launched.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using testing::eventually;
using testing::Launched;
namespace fs = std::filesystem;

class LaunchTest : public ::testing::Test {
 protected:
  LaunchTest() : folder_(fs::temp_directory_path() / fmt::format("launch_test_{}", getpid())) {
    for (const char* variable : {"SLUICE_CLUSTER", "SLUICE_SECRET_FILE", "SLUICE_CONFIG"}) unsetenv(variable);
    fs::create_directories(folder_);
    OpTable ops({builtin_ops().begin(), builtin_ops().end()});
    Job job = testing::classifier(ops);
    save_job(job, path("net.job"));
    testing::write_weights(job, path("first.safetensors"));
    std::ofstream(path("dp2.toml")) << "[mesh]\naxes = { dp = 2 }\n";
  }
  ~LaunchTest() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  std::vector<std::string> job(std::vector<std::string> more, const std::string& config = "dp2.toml") const {
    std::vector<std::string> words{"run",      path("net.job"), "--weights", path("first.safetensors"),
                                   "--config", path(config)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // A long run whose steps are under way.
  Launched running(std::vector<std::string> more = {"-n", "2"}) {
    more.insert(more.end(), {"--steps", "1000000"});
    Launched launched(job(more));
    EXPECT_TRUE(launched.wait_for("step ")) << launched.text();
    EXPECT_EQ(launched.workers().size(), 2u);
    return launched;
  }
  // The command in a folder of its own, where `python` is a shell.
  std::string command_with_shell() {
    fs::create_directories(path("bin"));
    std::string command = path("bin/sluice");
    if (!fs::exists(command)) fs::copy_file(fs::read_symlink("/proc/self/exe").parent_path() / "sluice", command);
    write("bin/python", "#!/bin/sh\nexec /bin/sh \"$@\"\n");
    fs::permissions(path("bin/python"), fs::perms::owner_all);
    return command;
  }
  Launched script(const std::string& text, std::vector<std::string> more = {"-n", "2"}) {
    std::vector<std::string> words{"run", write("train.py", text)};
    words.insert(words.end(), more.begin(), more.end());
    return Launched(words, {}, command_with_shell());
  }

 private:
  fs::path folder_;
};

// The last lines say what went wrong: the cause, then what to do.
void expect_cause(const Launched& launched, const std::string& what) {
  size_t at = launched.text().rfind("sluice: error: ");
  ASSERT_NE(at, std::string::npos) << launched.text();
  EXPECT_NE(launched.text().find(what, at), std::string::npos) << launched.text();
  EXPECT_LE(std::count(launched.text().begin() + long(at), launched.text().end(), '\n'), 4) << launched.text();
}

// ---- jobs ----------------------------------------------------------------------------------------------------------

// The largest distance of a weight tensor from `path`'s, in parts of its norm.
double distance(const std::string& path, const std::string& other) {
  Checkpoint left(path), right(other);
  EXPECT_EQ(left.arrays().size(), right.arrays().size());
  double worst = 0;
  for (auto& array : left.arrays()) {
    auto* twin = right.find(array.name);
    if (!twin || twin->dims != array.dims || twin->dtype != array.dtype) return INFINITY;
    auto values = [](const NamedArray& from) {
      return testing::values_of({from.dtype, from.dims, {from.bytes.begin(), from.bytes.end()}});
    };
    auto a = values(array), b = values(*twin);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), norm += a[i] * a[i];
    worst = std::max(worst, std::sqrt(difference / std::max(norm, 1e-30)));
  }
  return worst;
}

TEST_F(LaunchTest, GivesTheSameWeightsOnAnyNumberOfWorkers) {
  fs::copy_file("examples/parallel/dp2_tp2.toml", path("dp2_tp2.toml"));
  auto train = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"--steps", "12", "--save", path(name)});
    Launched launched(job(more, "dp2_tp2.toml"));
    EXPECT_EQ(launched.wait(), 0) << launched.text();
    EXPECT_NE(launched.text().find("step 12/12  loss "), std::string::npos) << launched.text();
  };
  train("here", {});
  for (const char* n : {"1", "2", "4"}) {
    train(n, {"-n", n});
    EXPECT_LT(distance(path("here"), path(n)), 1e-5) << n;
  }
}

TEST_F(LaunchTest, NamesAKilledWorker) {
  for (size_t which : {0, 1}) {
    auto launched = running();
    pid_t victim = launched.workers()[which];
    kill(victim, SIGKILL);
    EXPECT_EQ(launched.wait(), 137) << launched.text();
    expect_cause(launched, fmt::format("pid {}) was killed by signal 9 (Killed)\n  net.job ", victim));
  }
}

TEST_F(LaunchTest, NamesAStoppedWorker) {
  auto launched = running();
  pid_t victim = launched.workers()[1];
  kill(victim, SIGSTOP);
  EXPECT_EQ(launched.wait(), 1) << launched.text();
  expect_cause(launched, fmt::format("pid {}) is stopped (SIGSTOP, or a debugger)", victim));
}

TEST_F(LaunchTest, EndsAsAFailedJobDoes) {
  OpTable ops({builtin_ops().begin(), builtin_ops().end()});
  Job wrong = testing::classifier(ops, 8);
  save_job(wrong, path("net.job"));
  testing::write_weights(wrong, path("first.safetensors"));
  Launched launched(job({"-n", "2", "--steps", "5"}));
  EXPECT_EQ(launched.wait(), 1);
  expect_cause(launched, "net.py:20: ");
  Launched usage({"run", path("net.job"), "-n", "2"});
  EXPECT_EQ(usage.wait(), 64);
  expect_cause(usage, "a job's file holds no weights");
}

TEST_F(LaunchTest, CtrlCSavesAndEnds) {
  auto launched = running({"-n", "2", "--save", path("last")});
  launched.process().send(SIGINT);
  EXPECT_EQ(launched.wait(), 130) << launched.text();
  EXPECT_TRUE(launched.text().ends_with("sluice: stopped by signal 2 (Interrupt)\n")) << launched.text();
  EXPECT_FALSE(testing::text_of_file(path("last")).empty());
}

TEST_F(LaunchTest, SigtermEnds) {
  auto launched = running();
  launched.process().send(SIGTERM);
  EXPECT_EQ(launched.wait(), 143) << launched.text();
}

TEST_F(LaunchTest, AKilledLauncherLeavesNothing) {
  auto launched = running();
  launched.process().send(SIGKILL);
  EXPECT_EQ(launched.wait(), 137);
}

TEST_F(LaunchTest, TwoAtOnce) {
  Launched one(job({"-n", "2", "--steps", "30"})), two(job({"-n", "2", "--steps", "30"}));
  EXPECT_EQ(one.wait(), 0) << one.text();
  EXPECT_EQ(two.wait(), 0) << two.text();
}

TEST_F(LaunchTest, LeavesNoFile) {
  auto before = testing::traces();
  Launched launched(job({"-n", "2", "--steps", "3"}));
  EXPECT_EQ(launched.wait(), 0) << launched.text();
  auto killed = running();
  killed.process().send(SIGKILL);
  killed.wait();
  for (auto& name : testing::traces())  // other tests run at the same time; theirs go
    EXPECT_TRUE(before.contains(name) || eventually([&] { return !fs::exists(name); })) << name;
}

// The coordinator's port, from a worker's environment.
int port_of(pid_t worker) {
  std::string text = testing::text_of_file(fmt::format("/proc/{}/environ", worker));
  size_t at = text.find("SLUICE_CLUSTER=127.0.0.1:");
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + 25);
}

Handle dial(int port) {
  Handle fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(uint16_t(port)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0) << std::strerror(errno);
  return fd;
}

TEST_F(LaunchTest, TrainsOnWhileStrangersKnock) {
  auto launched = running();
  int port = port_of(launched.workers()[0]);
  std::vector<Handle> strangers;
  strangers.push_back(dial(port));  // says nothing
  for (std::string text : {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(5000, '\xff'),
                           std::string(100, '\0'), std::string("\x01")}) {
    strangers.push_back(dial(port));
    send(strangers.back().get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  Secret wrong = make_secret();
  std::ofstream(path("wrong")) << text_of(wrong);
  fs::permissions(path("wrong"), fs::perms::owner_read);
  Launched refused({"jobs", "--to", fmt::format("127.0.0.1:{}", port), "--secret", path("wrong")});
  EXPECT_EQ(refused.wait(), 64) << refused.text();
  expect_cause(refused, "has another secret");
  for (int line = 0; line < 2; ++line)  // it goes on
    EXPECT_TRUE(launched.wait_for("step ", launched.text().size())) << launched.text();
  launched.process().send(SIGTERM);
  EXPECT_EQ(launched.wait(), 143) << launched.text();
}

// ---- scripts -------------------------------------------------------------------------------------------------------

TEST_F(LaunchTest, RunsAScriptOnce) {
  auto launched = script(
      "echo \"args $1 $2\"; cat; test -n \"$SLUICE_CLUSTER\" && cat $SLUICE_SECRET_FILE | wc -c; echo $SLUICE_CONFIG",
      {"-n", "2", "--config", path("dp2.toml"), "--", "a b", "-c"});
  EXPECT_EQ(launched.wait(), 0);
  EXPECT_EQ(launched.text(), "args a b -c\n64\n" + path("dp2.toml") + "\n");
}

TEST_F(LaunchTest, ReturnsTheScriptsCode) {
  auto three = script("exit 3");
  EXPECT_EQ(three.wait(), 3);
  EXPECT_EQ(three.text(), "");  // it has said itself what was wrong
  auto crashed = script("kill -SEGV $$");
  EXPECT_EQ(crashed.wait(), 139);
  expect_cause(crashed, "train.py (pid ");
  expect_cause(crashed, "was killed by signal 11 (Segmentation fault)");
}

TEST_F(LaunchTest, TakesTheScriptsChildrenAlong) {
  for (bool kill_launcher : {false, true}) {
    auto launched = script("sleep 1000 & echo $!; setsid sleep 1000 & echo $!; echo there; " +
                           std::string(kill_launcher ? "wait" : "exit 0"));
    EXPECT_TRUE(launched.wait_for("there"));
    int first = 0, second = 0;
    ASSERT_EQ(std::sscanf(launched.text().c_str(), "%d %d", &first, &second), 2);
    launched.note(first);
    if (!kill_launcher) launched.note(second);  // one that leaves its session is found only while the launcher lives
    if (kill_launcher) {
      launched.process().send(SIGKILL);
      kill(second, SIGKILL);  // it holds the end of what we read
    }
    EXPECT_EQ(launched.wait(), kill_launcher ? 137 : 0);
  }
}

TEST_F(LaunchTest, AScriptThatDoesNotHearIsKilled) {
  auto launched =
      script("trap '' INT TERM; echo there; while :; do sleep 0.05; done", {"-n", "1", "--grace-seconds", "0.2"});
  EXPECT_TRUE(launched.wait_for("there"));
  launched.process().send(SIGINT);
  EXPECT_EQ(launched.wait(), 130);
  EXPECT_NE(launched.text().find("train.py did not end by itself and was killed"), std::string::npos)
      << launched.text();

  auto twice =
      script("trap 'echo heard' INT; echo there; while :; do sleep 0.05; done", {"-n", "1", "--grace-seconds", "3000"});
  EXPECT_TRUE(twice.wait_for("there"));
  twice.process().send(SIGINT);
  EXPECT_TRUE(twice.wait_for("heard"));
  twice.process().send(SIGINT);  // at once
  EXPECT_EQ(twice.wait(), 130);
}

TEST_F(LaunchTest, AWorkersEndEndsAnIdleScript) {
  auto launched = script("echo there; sleep 1000", {"-n", "2", "--grace-seconds", "0.1"});
  EXPECT_TRUE(launched.wait_for("there"));
  kill(launched.workers()[0], SIGSEGV);
  EXPECT_EQ(launched.wait(), 139);
  expect_cause(launched, "was killed by signal 11 (Segmentation fault)\n  train.py was killed by us after that\n");
}

TEST_F(LaunchTest, TellsWhoDidNotJoin) {
  auto launched = script("echo never", {"-n", "40", "--join-seconds", "0.1"});
  EXPECT_EQ(launched.wait(), 71);
  expect_cause(launched, " of 40 workers joined within ");
  EXPECT_EQ(launched.text().find("never"), std::string::npos);
}

TEST_F(LaunchTest, RefusesTwoClusters) {
  Launched launched(job({"-n", "2"}), {{"SLUICE_CLUSTER", "127.0.0.1:1"}});
  EXPECT_EQ(launched.wait(), 64);
  expect_cause(launched, "-n 2 starts workers here, and SLUICE_CLUSTER=127.0.0.1:1 names a cluster");
  Launched none(job({"-n", "0"}));
  EXPECT_EQ(none.wait(), 64);
}

TEST_F(LaunchTest, KeepsRawLogs) {
  auto launched = script("true", {"-n", "2", "--log-dir", path("logs/deep")});
  EXPECT_EQ(launched.wait(), 0) << launched.text();
  EXPECT_TRUE(fs::exists(path("logs/deep/worker-0.log")) && fs::exists(path("logs/deep/worker-1.log")));
}

}  // namespace
}  // namespace sluice
