// SPDX-License-Identifier: Apache-2.0
#include "launcher/plugins.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace sluice {
namespace {

constexpr size_t ops_max = 10'000;

std::filesystem::path found(const std::string& path) {
  std::error_code failure;
  auto full = std::filesystem::canonical(path, failure);
  if (failure) throw Error(Code::not_found, fmt::format("no plug-in {}", path), {}, "check [plugins] ops");
  return full;
}

}  // namespace

uint64_t hash_of_plugin(const std::string& name) {
  std::string path = found(name);
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && !file.eof()) throw Error(Code::io, "cannot read the plug-in " + path);
  return XXH64(bytes.data(), bytes.size(), 0);
}

Plugin load_plugin(const std::string& path) {
  auto full = found(path);
  Plugin plugin{full.string(), hash_of_plugin(full.string()), {}};
  void* object = dlopen(full.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!object) throw Error(Code::io, fmt::format("cannot load the plug-in {}: {}", path, dlerror()));
  using Table = const OpDef* const* (*)(size_t*);
  auto table = reinterpret_cast<Table>(dlsym(object, "sluice_ops"));
  if (!table)
    throw Error(Code::io, fmt::format("the plug-in {} exports no sluice_ops", path), {},
                "export extern \"C\" const sluice::OpDef* const* sluice_ops(size_t* count)");
  size_t count = 0;
  auto* ops = table(&count);
  if (!ops || count > ops_max) throw Error(Code::io, fmt::format("the plug-in {} has a bad table of ops", path));
  plugin.ops.assign(ops, ops + count);
  return plugin;
}

}  // namespace sluice
