// SPDX-License-Identifier: Apache-2.0
#include "comm/shm/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <string>

#include "base/error.h"

namespace sluice::shm {

namespace {

constexpr size_t huge_page_bytes = size_t(2) << 20;

[[noreturn]] void refuse(const char* what, size_t bytes) {
  std::string why = strerror(errno);
  throw Error(Code::failed,
              std::string("no memory to share with other processes: ") + what + " of " + std::to_string(bytes) +
                  " bytes failed (" + why + ")",
              {}, "use fewer or smaller slots, or a machine with more memory");
}

// Advice only: kernels may be told to give shared memory no huge pages.
void advise_huge(std::byte* data, size_t bytes) {
  if (bytes >= huge_page_bytes) madvise(data, bytes, MADV_HUGEPAGE);
}

}  // namespace

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Mapping::~Mapping() {
  if (data_) munmap(data_, bytes_);
}

Shared make_shared_memory(const char* name, size_t bytes) {
  Fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) refuse("a memory file", bytes);
  if (ftruncate(fd.get(), off_t(bytes)) != 0) refuse("a memory file", bytes);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) refuse("a mapping", bytes);
  Mapping memory(static_cast<std::byte*>(data), bytes);
  // From here on the file can be mapped for reading only; this mapping stays writable.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
    refuse("sealing a memory file", bytes);
  advise_huge(memory.data(), bytes);
  return {std::move(fd), std::move(memory)};
}

std::optional<Mapping> map_shared_memory(const Fd& fd, size_t bytes) {
  struct stat file {};
  struct statfs system {};
  // Only a memfd of ordinary pages: one of huge pages may fault where none is free, other files may do anything.
  if (!fd || bytes == 0 || fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode) || size_t(file.st_size) < bytes)
    return std::nullopt;
  if (fstatfs(fd.get(), &system) != 0 || system.f_type != TMPFS_MAGIC) return std::nullopt;
  int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK)) return std::nullopt;
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return std::nullopt;
  Mapping memory(static_cast<std::byte*>(data), bytes);
  advise_huge(memory.data(), bytes);
  return memory;
}

}  // namespace sluice::shm
