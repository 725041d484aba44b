// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/names.h"

namespace sluice {

namespace {

constexpr std::string_view index_name = "model.safetensors.index.json";
constexpr int64_t index_bytes_max = 100'000'000;

// weight_map: tensor -> shard. Everything else in an index is others' business and is passed over.
class IndexReader final : public JsonReader {
 public:
  std::map<std::string, std::string> shard_of;
  bool found = false;

  bool null() override { return !in_map_ || refuse("a shard's name is no text"); }
  bool boolean(bool) override { return null(); }
  bool number_integer(int64_t) override { return null(); }
  bool number_unsigned(uint64_t) override { return null(); }
  bool number_float(double, const std::string&) override { return null(); }
  bool start_array(size_t) override { return null() && deeper(); }
  bool end_array() override { return shallower(); }
  bool start_object(size_t) override {
    if (in_map_) return refuse("a shard's name is no text");
    in_map_ = depth_ == 1 && key_ == "weight_map";
    if (in_map_ && std::exchange(found, true)) return refuse("it has two weight_maps");
    return deeper();
  }
  bool end_object() override {
    in_map_ = false;
    return shallower();
  }
  bool key(std::string& name) override {
    key_ = name;
    return true;
  }
  bool string(std::string& text) override {
    if (!in_map_) return true;
    // A shard lies beside its index: a path could name any file.
    if (text.empty() || text.find('/') != std::string::npos || text.find('\0') != std::string::npos || text[0] == '.')
      return refuse(in_quotes(text) + " is no name of a shard");
    return shard_of.emplace(key_, text).second || refuse(in_quotes(key_) + " is there twice");
  }

 private:
  bool deeper() { return ++depth_ < 100 || refuse("it is nested too deeply"); }
  bool shallower() {
    --depth_;
    return true;
  }
  int depth_ = 0;
  bool in_map_ = false;
  std::string key_;
};

}  // namespace

// A whole file in memory, read as it is used.
class Checkpoint::Mapping {
 public:
  explicit Mapping(const std::string& path, int64_t bytes_max = INT64_MAX) {
    int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) fail(path, errno);
    struct stat info {};
    int bad = ::fstat(file, &info) != 0 ? errno : 0;
    if (!bad && !S_ISREG(info.st_mode)) bad = EINVAL;
    if (!bad && info.st_size > bytes_max) bad = EFBIG;
    size_ = size_t(info.st_size);
    if (!bad && size_ > 0) {
      memory_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
      if (memory_ == MAP_FAILED) bad = errno;
    }
    ::close(file);
    if (bad) fail(path, bad);
  }
  ~Mapping() {
    if (memory_) ::munmap(memory_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(memory_), size_}; }

 private:
  [[noreturn]] void fail(const std::string& path, int why) {
    memory_ = nullptr;
    throw Error(why == ENOENT ? Code::not_found : Code::io, "cannot open " + path + ": " + std::strerror(why), {},
                "check the path and that it is a file which may be read");
  }
  void* memory_ = nullptr;
  size_t size_ = 0;
};

Checkpoint::Checkpoint(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code bad;
  if (!fs::is_directory(path, bad)) {
    path.ends_with(".index.json") ? add_shards(fs::path(path).parent_path().string(), path) : add_file(path);
  } else if (std::string index = path + "/" + std::string(index_name); fs::exists(index, bad)) {
    add_shards(path, index);
  } else {
    add_file(path + "/model.safetensors");
  }
  sort_arrays(path);
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

const NamedArray* Checkpoint::find(std::string_view name) const {
  auto at = std::lower_bound(arrays_.begin(), arrays_.end(), name,
                             [](const NamedArray& array, std::string_view wanted) { return array.name < wanted; });
  return at != arrays_.end() && at->name == name ? &*at : nullptr;
}

void Checkpoint::add_file(const std::string& path) {
  auto file = std::make_unique<Mapping>(path);
  SafetensorsHeader header = parse_safetensors(file->bytes(), path);
  if (files_.empty()) metadata_ = std::move(header.metadata);
  std::move(header.arrays.begin(), header.arrays.end(), std::back_inserter(arrays_));
  files_.push_back(std::move(file));
}

void Checkpoint::add_shards(const std::string& folder, const std::string& index) {
  auto fault = [&](const std::string& what) {
    return Error(Code::io, index + " is no index of shards: " + what, {}, "write or fetch the checkpoint again");
  };
  IndexReader reader;
  {
    Mapping file(index, index_bytes_max);
    auto* text = reinterpret_cast<const char*>(file.bytes().data());
    std::string problem = reader.read(std::string_view(text, file.bytes().size()));
    if (!problem.empty()) throw fault(problem);
  }
  if (!reader.found) throw fault("it has no weight_map");
  std::set<std::string> shards;
  for (auto& [name, shard] : reader.shard_of) shards.insert(shard);
  for (auto& shard : shards) {
    std::string path = (folder.empty() ? "." : folder) + "/" + shard;
    if (!std::filesystem::exists(path))
      throw Error(Code::not_found, "the shard " + path + " is missing, which " + index + " names", {},
                  "fetch the whole checkpoint again");
    size_t first = arrays_.size();
    add_file(path);
    for (size_t i = first; i < arrays_.size(); ++i)
      if (auto at = reader.shard_of.find(arrays_[i].name); at == reader.shard_of.end() || at->second != shard)
        throw fault(path + " holds " + in_quotes(arrays_[i].name) + ", which it places elsewhere or not at all");
  }
  if (arrays_.size() != reader.shard_of.size())
    for (auto& [name, shard] : reader.shard_of)
      if (std::none_of(arrays_.begin(), arrays_.end(), [&](auto& array) { return array.name == name; }))
        throw fault(shard + " lacks " + in_quotes(name));
}

void Checkpoint::sort_arrays(const std::string& path) {
  std::sort(arrays_.begin(), arrays_.end(), [](auto& a, auto& b) { return a.name < b.name; });
  for (size_t i = 1; i < arrays_.size(); ++i)
    if (arrays_[i].name == arrays_[i - 1].name)
      throw Error(Code::io, path + " holds " + in_quotes(arrays_[i].name) + " twice", {}, "write the checkpoint again");
}

}  // namespace sluice
