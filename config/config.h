// SPDX-License-Identifier: Apache-2.0
// One checked Config from one TOML file. Every value keeps its file:line; an unknown key, a wrong type or a wrong
// value is an Error(usage) at that place with the nearest right key. Nothing later reads the file again.
// Thread rule: values.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace sluice {

template <class T>
struct Setting {
  T value{};
  Place place;  // unknown: the default
  operator const T&() const { return value; }
};

struct AxisSetting {
  std::string name;  // "pp" cuts stages, "dp" splits the batch; others ("tp", "sp", "ep") are planned
  int64_t size = 1;  // -1: what is left of the devices (one axis at most)
};

struct MeshSetting {
  std::string name;  // "" is the main mesh; "servers" from [mesh.servers]
  std::vector<AxisSetting> axes;
  std::string pool;
  Place place;
};

// [[rule]]: pins for variables (by full name) and, with `tensor = true`, for any tensor. First match wins.
struct RuleSetting {
  std::string match;                       // regular expression over the full name
  std::map<std::string, std::string> sbp;  // axis -> "S(0)" | "B" | "P"
  std::string mesh;                        // "" main; else a [mesh.NAME]
  int64_t stage = -1;                      // pipeline stage
  int64_t staleness = 0;
  Place place;
};

struct Config {
  std::string file;
  MeshSetting mesh;                      // [mesh]; no axes: one device
  std::vector<MeshSetting> meshes;       // [mesh.NAME]
  Setting<int64_t> global_batch;         // [train]; 0: fit's batch=
  Setting<int64_t> micro_batch;          // 0: global_batch
  Setting<double> clip_norm;             // 0: off
  Setting<int64_t> seed;                 // [train] seed; -1: the job's
  Setting<std::string> reduction_order;  // "fast" | "exact"
  Setting<std::string> schedule;         // [pipeline] "1f1b" | "gpipe"
  Setting<int64_t> zero_stage;           // [zero] 0 | 1
  std::vector<std::string> zero_axes;
  Setting<bool> coalesce;            // [debug] false: one actor an op
  Setting<bool> memory_reuse;        // [memory] reuse
  Setting<std::string> device;       // [device] kind = "cpu" | "cuda" | "sim" | "null"
  Setting<int64_t> device_threads;   // [device] threads; 0: chosen
  std::vector<std::string> plugins;  // [plugins] ops = ["path.so"]
  std::vector<RuleSetting> rules;
};

Config default_config();
// Throws Error(usage). `devices`: how many the launcher has; 0: as many as the axes need.
Config load_config(const std::string& file, int64_t devices = 0);
Config parse_config(std::string_view text, const std::string& file, int64_t devices = 0);
std::string text_of(const Config& config);  // complete TOML, with defaults: `sluice config print`
std::string config_schema();                // every key with type, default and doc: `sluice config schema`
int64_t devices_of(const Config& config);   // of all meshes

// The nearest of `words` to `word` by edit distance; "" when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& words);

}  // namespace sluice
