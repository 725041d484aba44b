// SPDX-License-Identifier: Apache-2.0
#include "kernels/host_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace sluice {
namespace {

constexpr size_t alignment = 64;
constexpr size_t huge_page = size_t(2) << 20;

[[noreturn]] void no_memory(size_t bytes, std::string_view device) {
  throw Error(Code::failed, fmt::format("device {}: no memory for {} bytes", device, bytes), {},
              "use a smaller micro-batch, more devices, or a memory budget");
}

// An absurd size is refused here: the allocator's own answer to one differs (null, a sanitizer's abort, a later kill).
size_t machine_bytes() {
  long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && bytes > 0 ? size_t(pages) * size_t(bytes) : SIZE_MAX / 2;
}

}  // namespace

void* allocate_host(size_t bytes, std::string_view device) {
  if (bytes > machine_bytes()) no_memory(bytes, device);
  bool large = bytes >= huge_page;
  size_t unit = large ? huge_page : alignment;
  size_t rounded = std::max(unit, (bytes + unit - 1) / unit * unit);
  void* memory = std::aligned_alloc(unit, rounded);
  if (!memory) no_memory(bytes, device);
#ifdef MADV_HUGEPAGE
  if (large) madvise(memory, rounded, MADV_HUGEPAGE);  // advice only: small pages work too
#endif
  std::memset(memory, 0, rounded);
  return memory;
}

void release_host(void* memory) { std::free(memory); }

}  // namespace sluice
