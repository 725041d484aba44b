// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace sluice {

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  for (int attempt = 0; attempt < 100 && file_ < 0; ++attempt) {
    beside_ = path_ + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(attempt);
    file_ = ::open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0 && errno != EEXIST) break;
  }
  if (file_ < 0) {
    beside_.clear();
    fail("create");
  }
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ::close(file_);
  if (!beside_.empty()) ::unlink(beside_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t wrote = ::write(file_, bytes.data(), std::min(bytes.size(), size_t(1) << 30));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("write");
    bytes = bytes.subspan(size_t(wrote));
  }
}

void AtomicFile::commit() {
  if (::fsync(file_) != 0) fail("flush");
  if (::close(std::exchange(file_, -1)) != 0) fail("close");
  if (::rename(beside_.c_str(), path_.c_str()) != 0) fail("rename");
  beside_.clear();
  // The name itself must survive a crash too.
  std::string folder = std::filesystem::path(path_).parent_path().string();
  int at = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (at < 0) return;  // a folder that may be written but not read: the file is there all the same
  ::fsync(at);
  ::close(at);
}

void AtomicFile::fail(const char* what) const {
  throw Error(Code::io, "cannot " + std::string(what) + " " + path_ + ": " + std::strerror(errno), {},
              "check that the folder exists, may be written and has room");
}

}  // namespace sluice
