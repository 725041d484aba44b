// SPDX-License-Identifier: Apache-2.0
// The memory that a process sends from: segments of sealed shared memory, added as they are needed.
//
//   segment 0  [ live | free | live |  never used  ]        a place is (segment, offset), the same for all processes
//   segment 1  [      live      | free |           ]
//
// Invariants: places are 64-byte aligned and zeroed when handed out; segments stay until the end.
// Thread rule: any thread; find() takes no lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "comm/shm/memory.h"
#include "kernels/device/device.h"

namespace sluice::shm {

struct Spot {
  uint32_t segment = 0;
  uint64_t offset = 0;
};

class Arena final : public HostMemory {
 public:
  Arena();
  void* allocate(size_t bytes) override;
  void release(void* memory) override;

  // Where in the arena these bytes lie; nothing when they are not wholly in one segment.
  std::optional<Spot> find(const std::byte* data, size_t bytes) const;
  // What others map of a segment that find() has named.
  struct Part {
    int fd = -1;
    size_t bytes = 0;
  };
  Part part(uint32_t segment) const;

 private:
  struct Segment {
    Shared shared;
    size_t used = 0;                // beyond it nothing was ever handed out: it is zero
    std::map<size_t, size_t> free;  // offset -> bytes; neighbours are joined
    std::byte* take(size_t bytes);  // null: no hole is large enough
    void give(size_t offset, size_t bytes);
  };
  using Index = std::vector<Segment*>;  // by id
  struct Live {
    Segment* segment;
    size_t bytes;
  };

  std::byte* grow(size_t bytes);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::unordered_map<void*, Live> live_;
  // Readers of find() take no lock, so old indices stay; there are as many as segments.
  std::vector<std::unique_ptr<Index>> indices_;
  std::atomic<const Index*> index_{nullptr};
};

}  // namespace sluice::shm
