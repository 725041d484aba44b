// SPDX-License-Identifier: Apache-2.0
// Child processes and signals of the command.
// Invariants: a child dies with us, however we end; when it has ended, what is left of its group is killed before it is
// reaped, so that no number of a process is used after it was given back.
// Thread rule: one thread an object. A child dies with the *thread* that started it, so that one has to stay.
#pragma once
#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sluice {

using Deadline = std::chrono::steady_clock::time_point;

class Handle {  // a file descriptor of ours
 public:
  explicit Handle(int fd = -1) : fd_(fd) {}
  Handle(Handle&& other) noexcept : fd_(other.release()) {}
  Handle& operator=(Handle&& other) noexcept;
  ~Handle() { close(); }
  int get() const { return fd_; }
  int release();
  void close();

 private:
  int fd_;
};

struct Ended {
  int code = 0, signal = 0;  // signal 0: it ended by itself
  int exit_code() const { return signal == 0 ? code : 128 + signal; }
  std::string text() const;  // "ended with code 3", "was killed by signal 9 (Killed)"
};

struct ProcessSpec {
  std::vector<std::string> words;                // the program's path, then its arguments
  std::map<std::string, std::string> variables;  // beside our environment
  bool captured = false;      // nothing to read, and what it prints comes out of output(); else it has our streams
  bool own_group = true;      // of processes; false: ours, so that it may read from our terminal
  bool interruptible = true;  // false: it never sees SIGINT
};

class Process {
 public:
  explicit Process(const ProcessSpec& spec);  // returns when the program runs; throws Error when it cannot
  ~Process();                                 // kills and reaps what still runs
  Process(Process&&) noexcept;
  Process& operator=(Process&&) noexcept;

  pid_t pid() const { return pid_; }
  int handle() const { return handle_.get(); }  // readable when it has ended
  int output() const { return output_.get(); }  // readable; it ends when nobody holds the other end
  void close_output() { output_.close(); }
  const std::optional<Ended>& ended();  // how it ended, once it has
  const std::optional<Ended>& wait(Deadline deadline);
  bool stopped() const;            // by SIGSTOP or a debugger
  void send(int signal);           // to it alone; nothing where it has ended
  void send_to_group(int signal);  // to it, and to what it started in its group

 private:
  pid_t pid_ = -1;
  bool own_group_ = true;
  Handle handle_, output_;
  std::optional<Ended> ended_;
};

// Signals that are taken one by one instead of interrupting. Blocked in this thread and in those it starts later;
// children see them as ever.
struct Signal {
  int number = 0;
  bool from_terminal = false;  // then all of the terminal's foreground group have it
};
class Signals {
 public:
  explicit Signals(std::initializer_list<int> numbers);
  ~Signals();
  Signals(const Signals&) = delete;
  int handle() const { return handle_.get(); }  // readable when there is one
  std::optional<Signal> take();

 private:
  std::set<int> ignored_;  // before: a terminal's signal is not meant for us then
  sigset_t before_;
  Handle handle_;
};

// A file without a name that holds `text`, for our own user's eyes; children find it at path_of(handle).
Handle make_nameless_file(const std::string& text);
std::string path_of(const Handle& handle);  // "/proc/PID/fd/N", for as long as we hold it

}  // namespace sluice
