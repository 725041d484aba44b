// SPDX-License-Identifier: Apache-2.0
#include "launcher/guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace sluice {

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::set<pid_t> children() {
  std::set<pid_t> found;
  std::error_code error;
  for (auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(entry.path() / "stat");
    std::string text((std::istreambuf_iterator<char>(in)), {});
    size_t at = text.rfind(')');  // the program's name before it may hold anything
    int parent = 0;
    if (at != std::string::npos && std::sscanf(text.c_str() + at + 1, " %*c %d", &parent) == 1 && parent == getpid())
      found.insert(std::stoi(name));
  }
  return found;
}

void kill_children_but(const std::set<pid_t>& spared) {
  while (true) {
    auto left = children();
    for (pid_t pid : spared) left.erase(pid);
    if (left.empty()) return;
    for (pid_t pid : left) kill(pid, SIGKILL);
    for (pid_t pid : left) waitpid(pid, nullptr, 0);
  }
}

namespace {

// Lines "group PID", "forget PID", "folder PATH" until the last writer is gone; "end" when nothing is to be done.
[[noreturn]] void keep_guard(int from) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(from, buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR);)
    if (got > 0) text.append(buffer, size_t(got));
  std::set<pid_t> groups;
  std::vector<std::string> folders;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == "end") _exit(0);
    std::string rest = line.substr(std::min(line.size(), line.find(' ') + 1));
    if (line.starts_with("group ")) groups.insert(std::atoi(rest.c_str()));
    if (line.starts_with("forget ")) groups.erase(std::atoi(rest.c_str()));
    if (line.starts_with("folder ")) folders.push_back(rest);
  }
  for (pid_t group : groups)
    if (group > 1) kill(-group, SIGKILL);
  std::error_code ignored;
  for (auto& folder : folders) std::filesystem::remove_all(folder, ignored);
  _exit(0);
}

}  // namespace

Guard::Guard() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw Error(Code::failed, "no pair of sockets");
  Handle from(ends[0]);
  to_ = Handle(ends[1]);
  pid_ = fork();
  if (pid_ < 0) throw Error(Code::failed, "no process can be started");
  if (pid_ == 0) {
    setsid();  // no terminal's signal and no group's reaches it
    Handle nothing(open("/dev/null", O_RDWR));
    for (int fd : {0, 1, 2}) dup2(nothing.get(), fd);
    int kept = dup2(from.get(), 3);
    close_range(4, ~0u, 0);
    keep_guard(kept);
  }
}

Guard::~Guard() {
  tell("end\n");
  to_.close();
  waitpid(pid_, nullptr, 0);
}

void Guard::tell(const std::string& line) {
  [[maybe_unused]] auto done = send(to_.get(), line.data(), line.size(), MSG_NOSIGNAL);
}
void Guard::add_group(pid_t group) { tell(fmt::format("group {}\n", group)); }
void Guard::forget_group(pid_t group) { tell(fmt::format("forget {}\n", group)); }
void Guard::add_folder(const std::string& path) { tell(fmt::format("folder {}\n", path)); }

}  // namespace sluice
