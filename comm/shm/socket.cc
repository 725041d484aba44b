// SPDX-License-Identifier: Apache-2.0
#include "comm/shm/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>

#include "base/error.h"
#include "base/hmac.h"

namespace sluice::shm {

namespace {

// Whole messages: a peer cannot send half of one, and stream clients (HTTP) cannot even connect.
Fd make_socket() {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw Error(Code::failed, std::string("no Unix socket: ") + strerror(errno), {}, "raise `ulimit -n`");
  return socket;
}

// Abstract: a leading zero byte, and nothing to remove afterwards.
socklen_t address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
  memcpy(address.sun_path + 1, name.data(), bytes);
  return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

}  // namespace

Door open_door() {
  std::array<uint8_t, 16> random;
  random_bytes(random);
  Door door{make_socket(), "sluice-"};
  for (uint8_t byte : random) {
    door.name += "0123456789abcdef"[byte / 16];
    door.name += "0123456789abcdef"[byte % 16];
  }
  sockaddr_un address;
  socklen_t bytes = address_of(door.name, address);
  if (bind(door.socket.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      listen(door.socket.get(), 4096) != 0)
    throw Error(Code::failed, std::string("a Unix socket cannot listen: ") + strerror(errno));
  return door;
}

Dialled dial(const std::string& name, Fd& socket) {
  sockaddr_un address;
  socklen_t bytes = address_of(name, address);
  Fd fresh = make_socket();
  if (connect(fresh.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0)
    return errno == EAGAIN || errno == EINTR ? Dialled::busy : Dialled::nobody;
  socket = std::move(fresh);
  return Dialled::connected;
}

Fd accept_guest(const Fd& door) { return Fd(accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); }

bool is_same_user(const Fd& socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

bool send_message(const Fd& socket, std::span<const std::byte> message, int passed) {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (passed >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &passed, sizeof passed);
  }
  for (;;) {
    ssize_t sent = sendmsg(socket.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0 || errno != EINTR) return sent == ssize_t(message.size());
  }
}

Received receive_message(const Fd& socket, std::span<std::byte> message, size_t& size, Fd* passed) {
  iovec part{message.data(), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};  // one: the kernel closes what is more
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (passed) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  ssize_t got;
  do got = recvmsg(socket.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0) return errno == EAGAIN ? Received::nothing : Received::end;
  for (cmsghdr* rights = CMSG_FIRSTHDR(&header); passed && rights; rights = CMSG_NXTHDR(&header, rights))
    if (rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
        rights->cmsg_len == CMSG_LEN(sizeof(int))) {
      int fd;
      memcpy(&fd, CMSG_DATA(rights), sizeof fd);
      *passed = Fd(fd);
    }
  size = size_t(got);
  return got == 0 || (header.msg_flags & MSG_TRUNC) ? Received::end : Received::message;
}

}  // namespace sluice::shm
