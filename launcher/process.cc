// SPDX-License-Identifier: Apache-2.0
#include "launcher/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"

namespace sluice {
namespace {

Error refused(const std::string& what) {
  return Error(Code::failed, fmt::format("{}: {}", what, std::strerror(errno)));
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    std::string text = *entry;
    if (!variables.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (auto& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

struct Pipe {
  Handle from, to;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw refused("no pipe");
    from = Handle(ends[0]), to = Handle(ends[1]);
  }
};

// What the child does between fork and exec. Other threads may have held any lock: only calls that are safe there.
struct Entrance {
  char* const* words;
  char* const* variables;
  pid_t parent;
  int output, nothing, errors;
  bool own_group, interruptible;

  [[noreturn]] void enter() const {
    if (own_group) setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // it was gone before the line above
    if (output >= 0 && (dup2(nothing, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)) fail();
    std::signal(SIGPIPE, SIG_DFL);
    if (own_group) std::signal(SIGINT, SIG_DFL);  // no terminal's SIGINT comes here: it is always meant
    if (!interruptible) std::signal(SIGINT, SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(words[0], words, variables);
    fail();
  }
  [[noreturn]] void fail() const {
    int why = errno;
    [[maybe_unused]] auto done = ::write(errors, &why, sizeof why);
    _exit(127);
  }
};

}  // namespace

// ---- handles -------------------------------------------------------------------------------------------------------

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) close(), fd_ = other.release();
  return *this;
}
int Handle::release() { return std::exchange(fd_, -1); }
void Handle::close() {
  if (fd_ >= 0) ::close(release());
}

// ---- processes -----------------------------------------------------------------------------------------------------

std::string Ended::text() const {
  return signal == 0 ? fmt::format("ended with code {}", code)
                     : fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
}

Process::Process(const ProcessSpec& spec) : own_group_(spec.own_group) {
  auto words = spec.words, variables = environment_with(spec.variables);
  auto argv = pointers(words), envp = pointers(variables);
  Pipe output, errors;
  Handle nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Entrance entrance{argv.data(),   envp.data(),     getpid(),       spec.captured ? output.to.get() : -1,
                    nothing.get(), errors.to.get(), spec.own_group, spec.interruptible};
  pid_ = fork();
  if (pid_ < 0) throw refused("no process can be started");
  if (pid_ == 0) entrance.enter();
  handle_ = Handle(int(syscall(SYS_pidfd_open, pid_, 0)));
  errors.to.close();
  int why = 0;
  ssize_t got;
  while ((got = read(errors.from.get(), &why, sizeof why)) < 0 && errno == EINTR) {
  }
  if (got == ssize_t(sizeof why)) {  // else the pipe was closed by a successful exec
    waitpid(std::exchange(pid_, -1), nullptr, 0);
    throw Error(Code::failed, fmt::format("{} cannot be started: {}", spec.words[0], std::strerror(why)));
  }
  if (!spec.captured) return;
  output_ = std::move(output.from);
  fcntl(output_.get(), F_SETFL, O_NONBLOCK);
}

Process::~Process() {
  if (pid_ < 0 || ended()) return;
  send_to_group(SIGKILL);
  wait(Deadline::max());
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      own_group_(other.own_group_),
      handle_(std::move(other.handle_)),
      output_(std::move(other.output_)),
      ended_(other.ended_) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(own_group_, other.own_group_);
  std::swap(handle_, other.handle_);
  std::swap(output_, other.output_);
  std::swap(ended_, other.ended_);
  return *this;
}

const std::optional<Ended>& Process::ended() {
  if (ended_ || pid_ < 0) return ended_;
  siginfo_t info{};
  int got = waitid(P_PID, id_t(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (got != 0 && errno == ECHILD) ended_ = Ended{0, SIGKILL};  // kill_children_but() was faster
  if (got != 0 || info.si_pid == 0) return ended_;
  if (own_group_) kill(-pid_, SIGKILL);
  waitid(P_PID, id_t(pid_), &info, WEXITED);
  ended_ = info.si_code == CLD_EXITED ? Ended{info.si_status, 0} : Ended{0, info.si_status};
  return ended_;
}

const std::optional<Ended>& Process::wait(Deadline deadline) {
  while (!ended()) {
    int ms = -1;
    if (deadline != Deadline::max()) {
      auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Deadline::clock::now());
      if (left.count() <= 0) break;
      ms = int(left.count());
    }
    pollfd waited{handle_.get(), POLLIN, 0};
    ::poll(&waited, 1, ms);
  }
  return ended_;
}

bool Process::stopped() const {
  std::ifstream in(fmt::format("/proc/{}/stat", pid_));
  std::string text((std::istreambuf_iterator<char>(in)), {});
  size_t at = text.rfind(')');
  return !ended_ && at != std::string::npos && at + 2 < text.size() && (text[at + 2] == 'T' || text[at + 2] == 't');
}

void Process::send(int signal) {
  if (pid_ > 0 && !ended_) kill(pid_, signal);
}

void Process::send_to_group(int signal) {
  if (pid_ > 0 && !ended_) kill(own_group_ ? -pid_ : pid_, signal);
}

// ---- signals -------------------------------------------------------------------------------------------------------

Signals::Signals(std::initializer_list<int> numbers) {
  sigset_t watched;
  sigemptyset(&watched);
  for (int number : numbers) {
    struct sigaction now {};
    sigaction(number, nullptr, &now);
    bool ignored = now.sa_handler == SIG_IGN;
    if (ignored && number == SIGHUP) continue;  // nohup
    if (ignored) ignored_.insert(number);
    sigaddset(&watched, number);
  }
  pthread_sigmask(SIG_BLOCK, &watched, &before_);
  handle_ = Handle(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (handle_.get() < 0) throw refused("signals cannot be taken");
}

Signals::~Signals() {
  while (take()) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<Signal> Signals::take() {
  signalfd_siginfo info{};
  while (read(handle_.get(), &info, sizeof info) == ssize_t(sizeof info)) {
    Signal signal{int(info.ssi_signo), info.ssi_code == SI_KERNEL};
    if (!signal.from_terminal || !ignored_.contains(signal.number)) return signal;
  }
  return {};
}

// ---- nameless files ------------------------------------------------------------------------------------------------

Handle make_nameless_file(const std::string& text) {
  Handle file(memfd_create("sluice", MFD_CLOEXEC));
  if (file.get() < 0 || fchmod(file.get(), 0600) != 0 ||
      write(file.get(), text.data(), text.size()) != ssize_t(text.size()))
    throw refused("no file in memory");
  return file;
}

std::string path_of(const Handle& handle) { return fmt::format("/proc/{}/fd/{}", getpid(), handle.get()); }

}  // namespace sluice
