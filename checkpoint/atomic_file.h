// SPDX-License-Identifier: Apache-2.0
// A file that appears whole or not at all: written beside its place, flushed to the disk, then renamed.
// Thread rule: one thread at a time.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace sluice {

class AtomicFile {
 public:
  explicit AtomicFile(std::string path);  // throws Error(io), as all of these
  ~AtomicFile();                          // without commit(): leaves nothing behind
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;
  std::string path_, beside_;
  int file_ = -1;
};

}  // namespace sluice
