// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/door.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "launcher/process.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

struct House {
  Secret secret = make_secret();
  std::atomic<int> in{0};
  Door door{"127.0.0.1", 0, secret, [this](int fd, Role) {
              close(fd);
              ++in;
            }};
  // A caller knows of its welcome before the callee is told.
  bool admits(int calls) const {
    for (auto until = std::chrono::steady_clock::now() + 20s; in != calls; usleep(1000))
      if (std::chrono::steady_clock::now() > until) return false;
    return true;
  }
  Credentials credentials() const { return {{"127.0.0.1", door.port()}, secret}; }
};

Handle stranger(int port) {
  Handle fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(uint16_t(port));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) fd.close();
  return fd;
}

// Waits for the other side to close; false where it does not within the time.
bool is_closed(const Handle& fd, int ms) {
  pollfd wait{fd.get(), POLLIN, 0};
  char byte;
  return poll(&wait, 1, ms) == 1 && recv(fd.get(), &byte, 1, 0) <= 0;
}

size_t files_open() {
  std::filesystem::directory_iterator all("/proc/self/fd");
  return size_t(std::distance(begin(all), end(all)));
}

TEST(Door, AdmitsWhoProvesTheSecret) {
  House house;
  for (int i = 0; i < 20; ++i) close(call_coordinator(house.credentials(), Role::worker, 5s, false));
  EXPECT_TRUE(house.admits(20));
}

TEST(Door, ClosesOnJunkAtOnceAndOnSilenceInTime) {
  House house;
  for (std::string junk : {std::string("\xff\xff\xff\xff"), std::string("GET / HTTP/1.0\r\n\r\n"),
                           std::string("\x16\x03\x01\x02\x00", 5), std::string(100'000, '\0')}) {
    Handle fd = stranger(house.door.port());
    [[maybe_unused]] auto sent = send(fd.get(), junk.data(), junk.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(is_closed(fd, 3000)) << junk.substr(0, 10);
  }
  Handle silent = stranger(house.door.port());
  EXPECT_TRUE(is_closed(silent, 20'000));
  EXPECT_EQ(house.in, 0);
}

TEST(Door, AFloodOfHalfOpenCallsIsBoundedAndKeepsNobodyOut) {
  House house;
  size_t before = files_open();
  int made = 0;
  std::vector<Handle> held;
  for (int i = 0; i < 10'000; ++i) {
    Handle fd = stranger(house.door.port());
    if (fd.get() < 0) break;
    ++made;
    held.push_back(std::move(fd));
    if (held.size() == 400) held.erase(held.begin(), held.begin() + 200);
    if (i % 1000 == 999) {
      close(call_coordinator(house.credentials(), Role::client, 20s, true));
      EXPECT_LE(files_open(), before + held.size() + Door::pending_max + 8);
    }
  }
  EXPECT_EQ(made, 10'000);
  EXPECT_TRUE(house.admits(10));
}

TEST(Door, APortInUseAndAnAddressThatIsNotOursAreNamed) {
  House house;
  EXPECT_THROW(Door("127.0.0.1", house.door.port(), house.secret, [](int, Role) {}), Error);
  EXPECT_THROW(Door("192.0.2.1", 0, house.secret, [](int, Role) {}), Error);
  int port = 0;
  { port = House().door.port(); }
  Credentials nobody{{"127.0.0.1", port}, house.secret};
  EXPECT_THROW(call_coordinator(nobody, Role::client, 5s, false), Error);
}

}  // namespace
}  // namespace sluice
