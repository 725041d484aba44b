// SPDX-License-Identifier: Apache-2.0
// The built command as a process that is watched from outside: what it prints, what it starts, what it leaves.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "launcher/process.h"

namespace sluice::testing {

namespace fs = std::filesystem;

inline Deadline in_time() { return Deadline::clock::now() + std::chrono::seconds(60); }  // only hangs take so long

template <class Holds>
bool eventually(Holds holds) {
  for (auto until = in_time(); !holds(); std::this_thread::yield())
    if (Deadline::clock::now() > until) return false;
  return true;
}

inline std::string text_of_file(const std::string& path) {
  std::ifstream in(path);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

struct Seen {  // of a process, while it was there
  pid_t pid = 0, parent = 0;
  char state = '?';
  std::string words;  // its command line
};

inline std::map<pid_t, Seen> processes() {
  std::map<pid_t, Seen> all;
  std::error_code error;
  for (auto& entry : fs::directory_iterator("/proc", error)) {
    std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string stat = text_of_file(entry.path() / "stat"), words = text_of_file(entry.path() / "cmdline");
    size_t at = stat.rfind(')');
    Seen seen{.pid = std::stoi(name)};
    if (at == std::string::npos || std::sscanf(stat.c_str() + at + 1, " %c %d", &seen.state, &seen.parent) != 2)
      continue;
    std::replace(words.begin(), words.end(), '\0', ' ');
    seen.words = words;
    all[seen.pid] = seen;
  }
  return all;
}

inline std::map<pid_t, Seen> descendants(pid_t of) {
  std::map<pid_t, Seen> found;
  auto all = processes();
  for (size_t before = 1; before != found.size();) {
    before = found.size();
    for (auto& [pid, seen] : all)
      if (seen.parent == of || found.contains(seen.parent)) found[pid] = seen;
  }
  return found;
}

// A zombie's end is the business of whoever has to reap it.
inline bool is_gone(pid_t pid) {
  auto all = processes();
  return !all.contains(pid) || all[pid].state == 'Z';
}

class Launched {
 public:
  explicit Launched(std::vector<std::string> words, std::map<std::string, std::string> variables = {},
                    const std::string& program = "")
      : process_(spec_of(std::move(words), std::move(variables), program)) {}

  pid_t pid() const { return process_.pid(); }
  Process& process() { return process_; }
  const std::string& text() const { return text_; }  // that it has printed so far

  // Looks from this place of the text on. False when it ended without it.
  bool wait_for(const std::string& text, size_t from = 0) {
    for (auto until = in_time(); text_.find(text, from) == std::string::npos;)
      if (!take(until)) return text_.find(text, from) != std::string::npos;
    return true;
  }
  // Its exit code, once it is gone with everything that it started.
  int wait() {
    note();
    auto until = in_time();
    while (take(until)) {
    }
    auto ended = process_.wait(until);
    EXPECT_TRUE(ended) << "it does not end\n" << text_;
    EXPECT_TRUE(eventually([&] { return left().empty(); })) << fmt::format("{}", fmt::join(left(), "; "));
    return ended ? ended->exit_code() : -1;
  }
  // Workers that it started, by number.
  std::vector<pid_t> workers() {
    note();
    std::vector<pid_t> found;
    for (auto& [pid, seen] : seen_)
      if (seen.words.find("sluice worker ") != std::string::npos) found.push_back(pid);
    return found;
  }
  // Remembers what it has started by now: that has to be gone at its end.
  void note() {
    for (auto& [pid, seen] : descendants(pid())) seen_[pid] = seen;
  }
  void note(pid_t pid) { seen_[pid] = {.pid = pid, .words = "noted"}; }

 private:
  static ProcessSpec spec_of(std::vector<std::string> words, std::map<std::string, std::string> variables,
                             std::string program) {
    if (program.empty()) program = fs::read_symlink("/proc/self/exe").parent_path() / "sluice";
    words.insert(words.begin(), program);
    return {.words = std::move(words), .variables = std::move(variables), .captured = true};
  }
  bool take(Deadline until) {
    char buffer[4096];
    auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Deadline::clock::now()).count();
    pollfd waited{process_.output(), POLLIN, 0};
    if (left <= 0 || poll(&waited, 1, int(left)) <= 0) return false;
    ssize_t got = read(process_.output(), buffer, sizeof buffer);
    if (got > 0) text_.append(buffer, size_t(got));
    return got > 0;
  }
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (auto& [pid, seen] : seen_)
      if (!is_gone(pid)) names.push_back(fmt::format("{} {}", pid, seen.words));
    return names;
  }

  Process process_;
  std::string text_;
  std::map<pid_t, Seen> seen_;
};

// Whether files that we make elsewhere are gone; the kernel's own (memfd, abstract sockets) go with their processes.
inline std::set<std::string> traces() {
  std::set<std::string> found;
  std::error_code error;
  for (const char* folder : {"/dev/shm", "/tmp"})
    for (auto& entry : fs::directory_iterator(folder, error)) {
      std::string name = entry.path().filename();
      if (name.starts_with("sluice-") || name.starts_with("ucx")) found.insert(entry.path());
    }
  return found;
}

}  // namespace sluice::testing
