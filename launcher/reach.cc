// SPDX-License-Identifier: Apache-2.0
#include "launcher/reach.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "launcher/process.h"

namespace sluice {
namespace {

std::string or_variable(const std::string& said, const char* variable) {
  const char* set = std::getenv(variable);
  return said.empty() && set ? set : said;
}

}  // namespace

Credentials credentials_of(const std::string& address, const std::string& secret_file) {
  std::string to = or_variable(address, "SLUICE_CLUSTER"), file = or_variable(secret_file, "SLUICE_SECRET_FILE");
  if (to.empty())
    throw Error(Code::usage, "which coordinator?", {}, "give HOST:PORT, or set SLUICE_CLUSTER and SLUICE_SECRET_FILE");
  if (file.empty())
    throw Error(Code::usage, fmt::format("with which secret is {} reached?", to), {},
                "give the file that `sluice coordinator --secret` uses, or set SLUICE_SECRET_FILE");
  return {parse_address(to), load_secret(file)};
}

void write_secret(const Secret& secret, const std::string& path) {
  Handle file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0)
    throw Error(Code::usage, fmt::format("no new secret can be written: {}", std::strerror(errno)), {path},
                errno == EEXIST ? "use it without --new-secret, or remove it" : "");
  std::string text = text_of(secret) + "\n";
  if (write(file.get(), text.data(), text.size()) != ssize_t(text.size()))
    throw Error(Code::io, fmt::format("the secret cannot be written: {}", std::strerror(errno)), {path});
}

}  // namespace sluice
