// SPDX-License-Identifier: Apache-2.0
// Memory that other processes of the host read: sealed memfds. Whoever makes one writes it; everybody else can only map
// it for reading, and nobody can change its size, so that no peer can spoil what is ours or pull away what we read.
// Thread rule: values with one owner.
#pragma once
#include <cstddef>
#include <optional>
#include <utility>

namespace sluice::shm {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  void reset();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

struct Shared {
  Fd fd;
  Mapping memory;  // writable, zeroed
};
// Throws Error when there is no memory. Pages come when they are touched.
Shared make_shared_memory(const char* name, size_t bytes);
// Nothing when `fd` is not what make_shared_memory makes, or smaller than `bytes`: a peer's word is not believed.
std::optional<Mapping> map_shared_memory(const Fd& fd, size_t bytes);

}  // namespace sluice::shm
