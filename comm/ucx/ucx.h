// SPDX-License-Identifier: Apache-2.0
// The transport between hosts, with what only tests and figures set or ask.
// Thread rule: as Transport's.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "comm/transport.h"

namespace sluice {

struct UcxOptions {
  bool payload_sum = true;                    // of all data, not of headers only
  uint64_t chunk_bytes = uint64_t(1) << 20;   // the same on all processes
  uint64_t window_bytes = uint64_t(4) << 20;  // of data that UCX holds for one peer: what control may wait behind
  uint64_t rendezvous_bytes_min = uint64_t(32) << 10;
};

class UcxTransport : public ProcessTransport {
 public:
  // Messages that were not of this run or session, or not intact: they change nothing.
  virtual int64_t dropped() const = 0;
};

std::unique_ptr<UcxTransport> make_ucx(const ProcessGroup& group, const std::string& interface,
                                       const UcxOptions& options);

}  // namespace sluice
