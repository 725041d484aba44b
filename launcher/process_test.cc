// SPDX-License-Identifier: Apache-2.0
#include "launcher/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "launcher/guard.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

Deadline soon() { return Deadline::clock::now() + 20s; }

ProcessSpec shell(const std::string& text) { return {.words = {"/bin/sh", "-c", text}, .captured = true}; }

// Everything that comes until the other end is closed, or `lines` lines.
std::string output_of(Process& process, int lines = -1) {
  std::string text;
  char buffer[256];
  while (lines < 0 || std::count(text.begin(), text.end(), '\n') < lines) {
    pollfd waited{process.output(), POLLIN, 0};
    if (poll(&waited, 1, 20'000) != 1) return text + "(nothing more came)";
    ssize_t got = read(process.output(), buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, size_t(got));
  }
  return text;
}

bool is_gone(pid_t pid) {  // a zombie's end is its reaper's business
  Handle handle(int(syscall(SYS_pidfd_open, pid, 0)));
  pollfd waited{handle.get(), POLLIN, 0};
  return handle.get() < 0 || poll(&waited, 1, 20'000) == 1;
}

TEST(Process, GivesOutputAndCode) {
  Process process(shell("echo out; echo err >&2; cat; exit 7"));
  EXPECT_EQ(output_of(process), "out\nerr\n");  // nothing to read, so `cat` ends
  auto ended = process.wait(soon());
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->exit_code(), 7);
  EXPECT_EQ(ended->text(), "ended with code 7");
}

TEST(Process, TellsSignals) {
  Process process(shell("kill -SEGV $$"));
  auto ended = process.wait(soon());
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->exit_code(), 128 + SIGSEGV);
  EXPECT_EQ(ended->text(), "was killed by signal 11 (Segmentation fault)");
}

TEST(Process, GetsVariablesAndKeepsOurs) {
  setenv("SLUICE_TEST_OURS", "a=b", 1);
  ProcessSpec spec = shell("echo $SLUICE_TEST_OURS $SLUICE_TEST_NEW");
  spec.variables = {{"SLUICE_TEST_NEW", "x"}};
  Process process(spec);
  EXPECT_EQ(output_of(process), "a=b x\n");
}

TEST(Process, RefusesWhatIsNoProgram) {
  for (const char* path : {"/nowhere/at/all", "/etc/passwd"}) {
    try {
      Process process({.words = {path}});
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
}

TEST(Process, WaitsNoLongerThanAsked) {
  Process process(shell("exec sleep 1000"));
  EXPECT_FALSE(process.wait(Deadline::clock::now() + 10ms));
  process.send(SIGTERM);
  EXPECT_EQ(process.wait(soon())->signal, SIGTERM);
}

TEST(Process, KnowsThatItIsStopped) {
  Process process(shell("echo; exec sleep 1000"));
  output_of(process, 1);
  EXPECT_FALSE(process.stopped());
  process.send(SIGSTOP);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, id_t(process.pid()), &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_TRUE(process.stopped());
}

// What a child started dies with it, whether it ends or is destroyed.
TEST(Process, TakesItsGroupAlong) {
  pid_t left_behind, killed;
  {
    Process process(shell("sleep 1000 & echo $!"));
    left_behind = std::stoi(output_of(process, 1));
    ASSERT_TRUE(process.wait(soon()));
    EXPECT_TRUE(is_gone(left_behind));
  }
  {
    Process process(shell("sleep 1000 & echo $!; wait"));
    killed = std::stoi(output_of(process, 1));
  }
  EXPECT_TRUE(is_gone(killed));
}

TEST(Process, SparesInterruptsWhereAsked) {
  ProcessSpec spec = shell("kill -INT $$; echo alive");
  Process dies(spec);
  EXPECT_EQ(dies.wait(soon())->signal, SIGINT);
  spec.interruptible = false;
  Process lives(spec);
  EXPECT_EQ(output_of(lives), "alive\n");
}

TEST(Signals, AreTakenOneByOneAndNotSeenByChildren) {
  Signals signals({SIGINT, SIGTERM});
  EXPECT_FALSE(signals.take());
  kill(getpid(), SIGINT);
  kill(getpid(), SIGTERM);
  auto first = signals.take(), second = signals.take();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->number + second->number, SIGINT + SIGTERM);
  EXPECT_FALSE(first->from_terminal);
  EXPECT_FALSE(signals.take());
  Process process(shell("kill -TERM $$; echo alive"));
  EXPECT_EQ(process.wait(soon())->signal, SIGTERM);  // not blocked there
}

TEST(NamelessFile, IsReadByChildrenOfOurUser) {
  Handle file = make_nameless_file("secret");
  struct stat info;
  fstat(file.get(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  Process process(shell("cat " + path_of(file)));
  EXPECT_EQ(output_of(process), "secret");
}

TEST(Process, DiesWithUs) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  pid_t launcher = fork();
  if (launcher == 0) {
    Process process(shell("exec sleep 1000"));
    pid_t pid = process.pid();
    [[maybe_unused]] auto done = write(ends[1], &pid, sizeof pid);
    pause();
  }
  pid_t child = 0;
  ASSERT_EQ(read(ends[0], &child, sizeof child), ssize_t(sizeof child));
  close(ends[0]), close(ends[1]);
  kill(launcher, SIGKILL);
  EXPECT_TRUE(is_gone(child));
  waitpid(launcher, nullptr, 0);
}

TEST(Guard, EndsQuietlyWithUs) {
  std::string folder = std::filesystem::temp_directory_path() / "sluice_guard_XXXXXX";
  ASSERT_TRUE(mkdtemp(folder.data()));
  {
    Guard guard;
    guard.add_folder(folder);
  }
  EXPECT_TRUE(std::filesystem::exists(folder));
  std::filesystem::remove(folder);
}

// A launcher that is killed: its child dies, its child's child does, and its folder goes.
TEST(Guard, CleansUpAfterASuddenEnd) {
  std::string folder = std::filesystem::temp_directory_path() / "sluice_guard_XXXXXX";
  ASSERT_TRUE(mkdtemp(folder.data()));
  std::ofstream(folder + "/file") << "x";
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  pid_t launcher = fork();
  if (launcher == 0) {
    Guard guard;
    guard.add_folder(folder);
    Process process(shell("sleep 1000 & echo $! $$; wait"));
    guard.add_group(process.pid());
    std::string pids = output_of(process, 1);
    [[maybe_unused]] auto done = write(ends[1], pids.data(), pids.size());
    pause();
  }
  char buffer[64] = {};
  ASSERT_GT(read(ends[0], buffer, sizeof buffer - 1), 0);
  close(ends[0]), close(ends[1]);
  int grandchild = 0, child = 0;
  ASSERT_EQ(std::sscanf(buffer, "%d %d", &grandchild, &child), 2);
  kill(launcher, SIGKILL);
  EXPECT_TRUE(is_gone(child));
  EXPECT_TRUE(is_gone(grandchild));
  auto until = soon();
  while (std::filesystem::exists(folder) && Deadline::clock::now() < until) std::this_thread::yield();
  EXPECT_FALSE(std::filesystem::exists(folder));
  waitpid(launcher, nullptr, 0);
}

TEST(Children, OrphansAreOursAndKilled) {
  pid_t tester = fork();
  if (tester == 0) {  // a process of its own: what it adopts is not the other tests'
    adopt_orphans();
    Process kept(shell("exec sleep 1000"));
    auto spared = children();
    // It leaves its group and its session, and its parent ends.
    Process process(shell("setsid sleep 1000 & echo"));
    output_of(process, 1);
    process.wait(soon());
    kill_children_but(spared);
    _exit(children() == spared && !kept.ended() ? 0 : 1);
  }
  int status = 1;
  waitpid(tester, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sluice
