// SPDX-License-Identifier: Apache-2.0
// Zeroed host memory, for the devices whose memory is the host's and for pinned buffers: 64-byte aligned; large blocks
// ask for huge pages, and are touched here so that no page fault falls into a step.
// Thread rule: any thread.
#pragma once
#include <cstddef>
#include <string_view>

namespace sluice {

// Throws Error that names `device` and the bytes when the machine cannot give that much. 0 bytes: a valid address.
void* allocate_host(size_t bytes, std::string_view device);
void release_host(void* memory);

}  // namespace sluice
