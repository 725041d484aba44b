// SPDX-License-Identifier: Apache-2.0
// Messages and descriptors over Unix sockets whose names lie in no file system. Nothing here ever blocks.
// Thread rule: functions on descriptors; one reader of a socket at a time.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "comm/shm/memory.h"

namespace sluice::shm {

// A listening socket under a fresh random name.
struct Door {
  Fd socket;
  std::string name;
};
Door open_door();

enum class Dialled { connected, busy, nobody };
Dialled dial(const std::string& name, Fd& socket);
Fd accept_guest(const Fd& door);                                                           // none: nobody waits
bool is_same_user(const Fd& socket);                                                       // as the kernel says
bool send_message(const Fd& socket, std::span<const std::byte> message, int passed = -1);  // false: see errno

enum class Received { message, nothing, end };
// `size` is what came, at most what fits; larger messages count as `end`, since no peer of ours sends them. Without
// `passed` the kernel drops whatever descriptors came.
Received receive_message(const Fd& socket, std::span<std::byte> message, size_t& size, Fd* passed = nullptr);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace sluice::shm
