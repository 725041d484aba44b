// SPDX-License-Identifier: Apache-2.0
#include "data/idx_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace sluice {

namespace {

constexpr int64_t bytes_max = int64_t(1) << 40;
constexpr size_t chunk_bytes = size_t(4) << 20;

class Input {
 public:
  explicit Input(const std::string& path) : path_(path) {
    errno = 0;
    file_ = gzopen(path.c_str(), "rb");
    if (!file_) {
      bool missing = errno == ENOENT;
      throw Error(missing ? Code::not_found : Code::io, "cannot open " + path + ": " + std::strerror(errno), {},
                  missing ? "check the path" : "check that the file may be read");
    }
    gzbuffer(file_, 1 << 17);
  }
  ~Input() { gzclose(file_); }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  // Reads up to `size` bytes; less only at the end of the file.
  size_t read(void* to, size_t size) {
    int got = gzread(file_, to, unsigned(size));
    int code = Z_OK;
    const char* why = gzerror(file_, &code);
    bool cut = code == Z_BUF_ERROR;  // the stream ends before its own end mark
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
      fault(cut ? "its gzip stream is truncated" : std::string("its gzip stream is corrupt (") + why + ")");
    return size_t(got);
  }
  bool plain() const { return gzdirect(file_) == 1; }
  [[noreturn]] void fault(const std::string& what) const {
    throw Error(Code::io, path_ + " cannot be used: " + what, {}, "fetch the file again");
  }

 private:
  const std::string& path_;
  gzFile file_ = nullptr;
};

int64_t big_endian(const uint8_t* b) {
  return int64_t(uint32_t(b[0]) << 24 | uint32_t(b[1]) << 16 | uint32_t(b[2]) << 8 | uint32_t(b[3]));
}

std::vector<int64_t> read_dims(Input& input, size_t count, int64_t& bytes) {
  std::array<uint8_t, 4> word{};
  if (input.read(word.data(), 4) < 4) input.fault("it ends within its header");
  if (word[0] != 0 || word[1] != 0) input.fault("it is no IDX file (bad magic number)");
  if (word[2] != 8) input.fault("its elements are not unsigned bytes (type " + std::to_string(word[2]) + ")");
  if (word[3] != count)
    input.fault("it has " + std::to_string(word[3]) + " dims where " + std::to_string(count) + " are expected");
  std::vector<int64_t> dims;
  bytes = 1;
  for (size_t d = 0; d < count; ++d) {
    if (input.read(word.data(), 4) < 4) input.fault("it ends within its header");
    dims.push_back(big_endian(word.data()));
    if (dims.back() == 0) input.fault("it holds no elements");
    if (__builtin_mul_overflow(bytes, dims.back(), &bytes) || bytes > bytes_max)
      input.fault("its header claims more than " + std::to_string(bytes_max >> 40) + " TiB");
  }
  return dims;
}

}  // namespace

IdxFile read_idx(const std::string& path, size_t dims) {
  Input input(path);
  int64_t bytes = 0;
  IdxFile file;
  file.dims = read_dims(input, dims, bytes);
  if (path.ends_with(".gz") && input.plain()) input.fault("it is not gzip, which its name says it is");
  while (int64_t(file.bytes.size()) < bytes) {
    size_t had = file.bytes.size(), want = std::min(chunk_bytes, size_t(bytes) - had);
    file.bytes.resize(had + want);
    size_t got = input.read(file.bytes.data() + had, want);
    if (got < want)
      input.fault("it is truncated: its header claims " + std::to_string(bytes) + " bytes, it has " +
                  std::to_string(had + got));
  }
  uint8_t more = 0;
  if (input.read(&more, 1) != 0) input.fault("it has more bytes than its header claims");
  return file;
}

}  // namespace sluice
