// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/door.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <list>
#include <thread>

#include "launcher/process.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto handshake_limit = 5s;

struct Found {
  addrinfo* all = nullptr;
  ~Found() {
    if (all) freeaddrinfo(all);
  }
};

Handle listen_at(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  Found found;
  if (int wrong = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found.all))
    throw Error(Code::usage, fmt::format("cannot listen on '{}': {}", host, gai_strerror(wrong)));
  int why = 0;
  for (auto* at = found.all; at; at = at->ai_next) {
    Handle fd(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd.get(), at->ai_addr, at->ai_addrlen) == 0 && listen(fd.get(), 1024) == 0) return fd;
    why = errno;
  }
  throw Error(Code::usage, fmt::format("cannot listen on {}: {}", text_of(Address{host, port}), std::strerror(why)), {},
              why == EADDRINUSE ? "another coordinator runs there; choose another port, or 0 for any" : "");
}

int port_of(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  char port[32] = "0";
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0)
    getnameinfo(reinterpret_cast<sockaddr*>(&at), size, nullptr, 0, port, sizeof port, NI_NUMERICSERV);
  return std::atoi(port);
}

}  // namespace

struct Door::Impl {
  struct Call {
    Handle fd;
    Handshake handshake;
    Clock::time_point until;
  };

  Secret secret;
  Admit admit;
  Handle listening, ended;
  int port = 0;
  std::list<Call> calls;  // oldest first
  bool full = false;      // no descriptor is left: rest a little
  std::thread thread;

  void run() {
    std::vector<pollfd> waits;
    while (true) {
      waits.assign({{ended.get(), POLLIN, 0}, {full ? -1 : listening.get(), POLLIN, 0}});
      for (auto& call : calls) waits.push_back({call.fd.get(), POLLIN, 0});
      poll(waits.data(), waits.size(), wait_ms());
      full = false;
      if (waits[0].revents) return;
      size_t i = 2;
      for (auto call = calls.begin(); call != calls.end(); ++i) {
        bool over = call->until <= Clock::now() || (waits[i].revents && !hear(*call));
        call = over ? calls.erase(call) : std::next(call);
      }
      if (waits[1].revents) take_calls();
    }
  }

  int wait_ms() const {
    auto until = calls.empty() ? Clock::time_point::max() : calls.front().until;
    if (full) until = std::min(until, Clock::now() + 100ms);
    if (until == Clock::time_point::max()) return -1;
    auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    return int(std::max<int64_t>(0, left.count()));
  }

  void take_calls() {
    for (int i = 0; i < 64; ++i) {
      Handle fd(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.get() < 0) {
        full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (full && !calls.empty()) calls.pop_front();
        return;
      }
      if (calls.size() >= pending_max) calls.pop_front();
      calls.push_back({std::move(fd), Handshake(secret), Clock::now() + handshake_limit});
    }
  }

  // False: the call is over, one way or the other.
  bool hear(Call& call) {
    uint8_t bytes[Handshake::hello_bytes];
    ssize_t size = recv(call.fd.get(), bytes, std::min(sizeof bytes, call.handshake.wanted()), 0);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) return false;
    auto state = call.handshake.take({bytes, size_t(size)});
    auto answer = call.handshake.answer();
    // So little always fits into a new connection's buffer.
    bool sent = send(call.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL) == ssize_t(answer.size());
    if (sent && state == Handshake::accepted) admit(call.fd.release(), call.handshake.role());
    return sent && (state == Handshake::listening || state == Handshake::proving);
  }
};

Door::Door(const std::string& host, int port, const Secret& secret, Admit admit)
    : impl_(new Impl{.secret = secret,
                     .admit = std::move(admit),
                     .listening = listen_at(host, port),
                     .ended = Handle(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))}) {
  impl_->port = port_of(impl_->listening.get());
  impl_->thread = std::thread([this] { impl_->run(); });
}

Door::~Door() {
  uint64_t one = 1;
  [[maybe_unused]] auto written = write(impl_->ended.get(), &one, sizeof one);
  impl_->thread.join();
}

int Door::port() const { return impl_->port; }

}  // namespace sluice
