// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/hmac.h"
#include "launcher/cluster/cluster.h"
#include "launcher/process.h"

namespace sluice {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// A file without a name (a memfd, say) is reached only through its owner's descriptors.
void check_owner(const std::string& path, int fd) {
  struct stat file {};
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode))
    throw Error(Code::usage, "the secret's file is no regular file", {path});
  if (file.st_nlink == 0) return;
  if ((file.st_mode & 077) != 0)
    throw Error(Code::usage, "the secret's file can be read by others", {path}, "chmod 600 " + path);
}

}  // namespace

Secret make_secret() {
  Secret secret;
  random_bytes(secret.bytes);
  return secret;
}

Secret load_secret(const std::string& path) {
  Handle file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) throw Error(Code::usage, "there is no secret's file to read", {path}, "check SLUICE_SECRET_FILE");
  check_owner(path, file.get());
  char text[128];
  ssize_t size = pread(file.get(), text, sizeof text, 0);
  while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r')) --size;
  Secret secret;
  bool good = size == ssize_t(2 * secret.bytes.size());
  for (size_t i = 0; good && i < secret.bytes.size(); ++i) {
    int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
    good = high >= 0 && low >= 0;
    secret.bytes[i] = uint8_t(high << 4 | low);
  }
  if (!good) throw Error(Code::usage, "the file holds no secret: 64 hex digits on one line", {path});
  return secret;
}

std::string text_of(const Secret& secret) {
  std::string text;
  for (uint8_t byte : secret.bytes) text += fmt::format("{:02x}", byte);
  return text;
}

Address parse_address(const std::string& text) {
  auto wrong = [&] {
    return Error(Code::usage, fmt::format("'{}' is no address", text.substr(0, 100)), {},
                 "write HOST:PORT, as in head:7700 or [::1]:7700");
  };
  size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || text.size() > 300) throw wrong();
  std::string host = text.substr(0, colon), port = text.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string::npos)
    throw wrong();  // an IPv6 address wants brackets
  bool digits = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  if (host.empty() || !digits || std::stoi(port) == 0 || std::stoi(port) > 65535) throw wrong();
  return {host, std::stoi(port)};
}

std::string text_of(const Address& address) {
  bool six = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", six ? "[" : "", address.host, six ? "]" : "", address.port);
}

std::optional<Credentials> cluster_of_environment() {
  const char *address = getenv("SLUICE_CLUSTER"), *path = getenv("SLUICE_SECRET_FILE");
  bool has_address = address && *address, has_path = path && *path;
  if (!has_address && !has_path) return std::nullopt;
  if (!has_address || !has_path)
    throw Error(Code::usage,
                fmt::format("{} is set, but {} is not", has_address ? "SLUICE_CLUSTER" : "SLUICE_SECRET_FILE",
                            has_address ? "SLUICE_SECRET_FILE" : "SLUICE_CLUSTER"),
                {}, "set both to use a cluster, or none to run here");
  return Credentials{parse_address(address), load_secret(path)};
}

}  // namespace sluice
