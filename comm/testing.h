// SPDX-License-Identifier: Apache-2.0
// What tests of transports share: queues that callbacks post to, two connected transports in one process, and a peer
// in a process of its own that can be killed.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "comm/transport.h"

namespace sluice::testing {

// Of one process, or between processes: then ranks are dealt to two processes, even and odd.
struct TransportKind {
  const char* name;
  std::unique_ptr<Transport> (*alone)() = nullptr;
  std::unique_ptr<ProcessTransport> (*between)(const ProcessGroup&) = nullptr;
};

// What callbacks post to, and threads wait on.
template <class T>
class Queue {
 public:
  void post(T item) {
    std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    posted_.notify_one();
  }
  T take() {
    std::unique_lock lock(mutex_);
    posted_.wait(lock, [&] { return !items_.empty(); });
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  size_t size() {
    std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<T> items_;
};

using Losses = Queue<std::pair<int, std::string>>;

inline ProcessGroup group_of(int process, Losses* losses, int silence_ms_max = 60'000) {
  ProcessGroup group{.process = process, .processes = 2, .process_of_rank = {0, 1, 0, 1}, .run = 77};
  group.key.fill(0x5a);
  group.silence_ms_max = silence_ms_max;
  if (losses) group.on_lost = [losses](int who, const std::string& why) { losses->post({who, why}); };
  return group;
}

// Connects both sides at once; what one of them throws is thrown here.
inline void connect(ProcessTransport& a, ProcessTransport& b) {
  std::vector<std::string> addresses{a.address(), b.address()};
  std::exception_ptr failure;
  std::thread other([&] {
    try {
      b.connect({addresses[0], ""});
    } catch (...) {
      failure = std::current_exception();
    }
  });
  try {
    a.connect({"", addresses[1]});
  } catch (...) {
    other.join();
    throw;
  }
  other.join();
  if (failure) std::rethrow_exception(failure);
}

// One transport for all ranks, or one for even and one for odd ranks.
class Ends {
 public:
  explicit Ends(const TransportKind& kind) {
    if (kind.alone) {
      transports_.push_back(kind.alone());
      return;
    }
    auto a = kind.between(group_of(0, &losses)), b = kind.between(group_of(1, &losses));
    connect(*a, *b);
    transports_.push_back(std::move(a));
    transports_.push_back(std::move(b));
  }
  ~Ends() {
    close();
    EXPECT_EQ(losses.size(), 0u) << "nobody is lost, and a close is no loss";
    for (auto& [memory, from] : held_) from ? from->release(memory) : std::free(memory);
  }
  Transport& at(int rank) { return *transports_[size_t(rank) % transports_.size()]; }
  bool apart() const { return transports_.size() > 1; }
  void close() {
    for (auto& transport : transports_) transport->close();
  }
  // Memory that `rank` may send from, until the end.
  std::byte* memory(int rank, size_t bytes) {
    HostMemory* from = at(rank).memory();
    void* memory = from ? from->allocate(bytes) : std::calloc(bytes + 1, 1);
    held_.push_back({memory, from});
    return static_cast<std::byte*>(memory);
  }

  Losses losses;

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::pair<void*, HostMemory*>> held_;
};

// Words between two processes, beside what is tested.
class Talk {
 public:
  explicit Talk(int fd) : fd_(fd) {}
  Talk(const Talk&) = delete;
  ~Talk() { ::close(fd_); }
  void say(const std::string& word) {
    if (::send(fd_, word.data(), word.size(), MSG_NOSIGNAL) < 0) throw Error(Code::failed, "the other process is gone");
  }
  std::string hear() {
    std::string word(5000, '\0');
    ssize_t size = ::recv(fd_, word.data(), word.size(), 0);
    if (size <= 0) throw Error(Code::failed, "the other process is gone");
    return word.substr(0, size_t(size));
  }

 private:
  int fd_;
};

// Process 1 of two, forked before this one has threads. `body` gets its connected transport; when it returns, the
// process ends without a goodbye.
class ForkedPeer {
 public:
  using Body = std::function<void(ProcessTransport&, Talk&)>;
  ForkedPeer(const TransportKind& kind, const ProcessGroup& group, const Body& body) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      run(kind, group, body, ends[1]);
    }
    ::close(ends[1]);
    talk_.emplace(ends[0]);
  }
  ~ForkedPeer() { end(); }
  void connect(ProcessTransport& mine) {
    talk_->say(mine.address());
    mine.connect({"", talk_->hear()});
  }
  Talk& talk() { return *talk_; }
  void signal(int number) { kill(pid_, number); }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  [[noreturn]] static void run(const TransportKind& kind, ProcessGroup group, const Body& body, int fd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    group.process = 1;
    group.on_lost = nullptr;
    try {
      Talk talk(fd);
      auto transport = kind.between(group);
      talk.say(transport->address());
      transport->connect({talk.hear(), ""});
      body(*transport, talk);
      _exit(0);  // before the transport could say goodbye
    } catch (const std::exception& error) {
      fprintf(stderr, "the forked peer: %s\n", error.what());
    }
    _exit(1);
  }

  pid_t pid_ = 0;
  std::optional<Talk> talk_;
};

}  // namespace sluice::testing
