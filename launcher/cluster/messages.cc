// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace sluice {
namespace {

Error bad(const std::string& what) { return Error(Code::io, "a message of the cluster is wrong: " + what); }

std::string short_name(const std::string& name) { return quote(name.substr(0, 100)); }

// The bytes that dtype and dims stand for; throws where that is not `total`.
void check_size(const Chunk& chunk) {
  unsigned __int128 bytes = unsigned(bytes_of(chunk.dtype));
  for (int64_t dim : chunk.dims) {
    if (dim < 0 || chunk.dims.size() > 64) throw bad("dims of " + short_name(chunk.name));
    bytes = bytes * uint64_t(dim);
    if (bytes > (uint64_t(1) << 62)) throw bad("the size of " + short_name(chunk.name));
  }
  if (bytes != chunk.total) throw bad("the size of " + short_name(chunk.name));
}

}  // namespace

void cut(const std::vector<Named>& arrays, const std::function<void(std::vector<Chunk>, bool last)>& send) {
  std::vector<Chunk> chunks;
  size_t room = chunk_bytes_max;
  for (auto& [name, array] : arrays) {
    auto& data = array->data;
    size_t offset = 0;
    do {
      if (room == 0 || chunks.size() >= 256) send(std::exchange(chunks, {}), false), room = chunk_bytes_max;
      size_t bytes = std::min(room, data.size() - offset);
      auto from = data.begin() + std::ptrdiff_t(offset);
      chunks.push_back({name, array->dtype, array->dims, data.size(), offset, {from, from + std::ptrdiff_t(bytes)}});
      offset += bytes, room -= bytes;
    } while (offset < data.size());
  }
  send(std::move(chunks), true);
}

void Assembly::add(Chunk chunk, const Limit& limit) {
  auto found = parts_.find(chunk.name);
  if (found == parts_.end()) {
    auto most = limit(chunk.name);
    if (!most) throw Error(Code::value, "the plan has no input '" + chunk.name.substr(0, 200) + "'");
    if (chunk.offset != 0) throw bad("it begins in the middle");
    check_size(chunk);
    if (chunk.total > *most)
      throw Error(Code::value,
                  fmt::format("'{}' is to have {} bytes, and at most {} are expected", chunk.name, chunk.total, *most));
    found = parts_.emplace(chunk.name, Part{{chunk.dtype, chunk.dims, {}}, chunk.total}).first;
    found->second.array.data.reserve(chunk.total);
  }
  auto& part = found->second;
  if (chunk.offset != part.array.data.size() || chunk.data.size() > part.total - chunk.offset)
    throw bad("pieces are out of order");
  part.array.data.insert(part.array.data.end(), chunk.data.begin(), chunk.data.end());
}

std::map<std::string, HostArray> Assembly::take_all() {
  std::map<std::string, HostArray> arrays;
  for (auto& [name, part] : parts_) {
    if (part.array.data.size() != part.total) throw bad("it ends in the middle");
    arrays.emplace(name, std::move(part.array));
  }
  parts_.clear();
  return arrays;
}

bool Flow::take(int64_t bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || under_way_ == 0 || under_way_ + bytes <= flow_bytes_max; });
  under_way_ += bytes;
  return !closed_;
}

void Flow::give(int64_t bytes) {
  std::lock_guard lock(mutex_);
  under_way_ -= bytes;
  changed_.notify_all();
}

bool Flow::closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

void Flow::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace sluice
