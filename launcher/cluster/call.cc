// SPDX-License-Identifier: Apache-2.0
// The caller's side of a connection to a coordinator, until the handshake is over.
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "launcher/cluster/handshake.h"
#include "launcher/process.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

struct Dropped {  // the call was cut or not taken: worth another try
  std::string why;
  bool nobody = false;  // listens there
};

void await(int fd, short what, Clock::time_point until) {
  pollfd wait{fd, what, 0};
  while (true) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) throw Dropped{"it does not answer"};
    if (poll(&wait, 1, int(left)) > 0) return;
  }
}

Handle connect_to(const addrinfo& at, Clock::time_point until) {
  Handle fd(socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) throw Error(Code::failed, fmt::format("no socket: {}", std::strerror(errno)));
  if (connect(fd.get(), at.ai_addr, at.ai_addrlen) == 0) return fd;
  if (errno != EINPROGRESS) throw Dropped{std::strerror(errno), true};
  await(fd.get(), POLLOUT, until);
  int why = 0;
  socklen_t size = sizeof why;
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &why, &size);
  if (why != 0) throw Dropped{std::strerror(why), true};
  return fd;
}

Handle connect_to(const Address& address, Clock::time_point until) {
  addrinfo hints{}, *all = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  if (int wrong = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &all))
    throw Error(Code::usage, fmt::format("no host '{}': {}", address.host, gai_strerror(wrong)));
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(all, freeaddrinfo);
  std::optional<Dropped> last;
  for (auto* at = found.get(); at; at = at->ai_next) {
    try {
      return connect_to(*at, until);
    } catch (const Dropped& dropped) {
      last = dropped;
    }
  }
  throw last.value_or(Dropped{"it has no address"});
}

void send_all(int fd, const Handshake::Bytes& bytes, Clock::time_point until) {
  for (size_t done = 0; done < bytes.size();) {
    await(fd, POLLOUT, until);
    ssize_t sent = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) throw Dropped{std::strerror(errno)};
    if (sent > 0) done += size_t(sent);
  }
}

Handshake::Bytes receive_all(int fd, size_t size, Clock::time_point until) {
  Handshake::Bytes bytes(size);
  for (size_t done = 0; done < size;) {
    await(fd, POLLIN, until);
    ssize_t got = recv(fd, bytes.data() + done, size - done, 0);
    if (got == 0) throw Dropped{"it closed the connection"};
    if (got < 0 && errno != EAGAIN && errno != EINTR) throw Dropped{std::strerror(errno)};
    if (got > 0) done += size_t(got);
  }
  return bytes;
}

int call_once(const Credentials& credentials, Role role, Clock::time_point until) {
  Handle fd = connect_to(credentials.address, until);
  Digest nonce;
  random_bytes(nonce);
  send_all(fd.get(), Handshake::hello(role, nonce), until);
  auto challenge = receive_all(fd.get(), Handshake::challenge_bytes, until);
  std::string peer = "the coordinator at " + text_of(credentials.address);
  send_all(fd.get(), Handshake::prove(credentials.secret, role, nonce, challenge, peer), until);
  receive_all(fd.get(), 1, until);
  return fd.release();
}

}  // namespace

int call_coordinator(const Credentials& credentials, Role role, std::chrono::milliseconds limit, bool patient) {
  auto until = Clock::now() + limit;
  std::mt19937 random{std::random_device{}()};
  // Callers that were dropped together come back one by one.
  for (auto pause = 20ms;; pause = std::min<std::chrono::milliseconds>(pause * 2, 1000ms)) {
    Dropped dropped;
    try {
      return call_once(credentials, role, until);
    } catch (const Dropped& why) {
      dropped = why;
    }
    if ((dropped.nobody && !patient) || Clock::now() + pause >= until)
      throw Error(Code::failed,
                  fmt::format("the coordinator at {} is not reached: {}", text_of(credentials.address), dropped.why),
                  {}, "check that it runs, and that its address can be reached from here");
    poll(nullptr, 0, int(pause.count() / 2 + random() % uint32_t(pause.count())));
  }
}

}  // namespace sluice
