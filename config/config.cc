// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>

#include "config/read.h"

namespace sluice {
namespace {

constexpr size_t file_bytes_max = 1 << 20;
constexpr int dots_max = 1000;
constexpr int64_t devices_max = 1 << 20;

// Dotted keys nest tables without any bound of toml++'s own, and tables are freed recursively. So dots outside of
// strings and comments are counted first; a real file has a few.
bool nests_too_deep(std::string_view text) {
  int dots = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size() - 1);
    } else if (c == '"' || c == '\'') {
      std::string fence(text.substr(i, 3) == std::string(3, c) ? 3 : 1, c);
      for (i += fence.size(); i < text.size() && text.substr(i, fence.size()) != fence; ++i)
        if (c == '"' && text[i] == '\\') ++i;
      i += fence.size() - 1;
    } else if (c == '.' && ++dots > dots_max) {
      return true;
    }
  }
  return false;
}

toml::table parse_toml(std::string_view text, const std::string& file) {
  if (text.size() > file_bytes_max)
    throw Error(Code::usage, fmt::format("the file has more than {} bytes", file_bytes_max), {file});
  if (nests_too_deep(text)) throw Error(Code::usage, "the file nests its keys too deep", {file});
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    auto at = error.source().begin;
    std::string why(error.description());
    for (char& c : why)
      if (static_cast<unsigned char>(c) < 0x20) c = '?';
    throw Error(Code::usage, fmt::format("bad TOML at column {}: {}", at.column, why.substr(0, 300)),
                {file, int(at.line)});
  }
}

void read_mesh(Config& config, const Entry& entry) {
  config.mesh.place = entry.place;
  for (auto& item : entries_of(table_of(entry), config.file)) {
    if (item.name == "axes") config.mesh.place = item.place;
    bool misspelt = !nearest(item.name, names_in("mesh")).empty();
    if (find_key("mesh", item.name) || !item.node->is_table() || misspelt) {
      read_entry(config.mesh, "mesh", "[mesh]", item);
      continue;
    }
    if (item.name == "main" || item.name == "client" || item.name.empty())
      throw Error(Code::usage, fmt::format("the name {} of a mesh is taken", shown(item.name)), item.place,
                  "the main mesh is [mesh]; give a further one a name of its own");
    MeshSetting mesh{.name = item.name, .place = item.place};
    for (auto& setting : entries_of(table_of(item), config.file)) {
      if (setting.name == "axes") mesh.place = setting.place;
      read_entry(mesh, "mesh", fmt::format("[mesh.{}]", item.name), setting);
    }
    if (mesh.axes.empty())
      throw Error(Code::usage, fmt::format("[mesh.{}] has no axes", item.name), item.place,
                  "write axes = { shard = 4 }");
    config.meshes.push_back(std::move(mesh));
  }
}

void read_rules(Config& config, const Entry& entry) {
  auto* array = entry.node->as_array();
  if (!array) throw Error(Code::usage, "'rule' is a list of tables", entry.place, "write [[rule]]");
  for (auto& node : *array) {
    Place place{config.file, int(node.source().begin.line)};
    RuleSetting rule{.place = place};
    for (auto& setting : entries_of(table_of({"rule", place, &node}), config.file))
      read_entry(rule, "rule", "[[rule]]", setting);
    config.rules.push_back(std::move(rule));
  }
}

void read_top(Config& config, const Entry& entry) {
  auto all = sections();
  if (entry.name == "mesh") return read_mesh(config, entry);
  if (entry.name == "rule") return read_rules(config, entry);
  if (std::find(all.begin(), all.end(), entry.name) == all.end()) {
    std::string near = nearest(entry.name, all), next = fmt::format("there are: [{}]", fmt::join(all, "], ["));
    if (!near.empty()) next = fmt::format("did you mean {}?", title_of(near));
    for (auto& key : keys())
      if (!entry.node->is_table() && near.empty() && key.name == entry.name)
        next = fmt::format("'{}' belongs to {}", entry.name, title_of(key.section));
    throw Error(Code::usage,
                fmt::format("unknown {} {}", entry.node->is_table() ? "section" : "key", shown(entry.name)),
                entry.place, next);
  }
  if (names_in(entry.name).empty()) refuse_later(title_of(entry.name), entry.place);
  for (auto& item : entries_of(table_of(entry), config.file))
    read_entry(config, entry.name, title_of(entry.name), item);
}

// ---- what needs more than one key -----------------------------------------------------------------------------------

// The product of the axes, without the one that is -1.
int64_t product_of(const MeshSetting& mesh) {
  int64_t product = 1;
  for (auto& axis : mesh.axes) {
    product *= axis.size < 0 ? 1 : axis.size;
    if (product > devices_max)
      throw Error(Code::usage, fmt::format("the axes need more than {} devices", devices_max), mesh.place);
  }
  return product;
}

bool has_axis(const MeshSetting& mesh, std::string_view name) {
  return std::any_of(mesh.axes.begin(), mesh.axes.end(), [&](auto& axis) { return axis.name == name; });
}

std::string title_of(const MeshSetting& mesh) { return mesh.name.empty() ? "[mesh]" : "[mesh." + mesh.name + "]"; }

// "[mesh] pp 2 * dp 2 = 4, [mesh.servers] shard 2"
std::string arithmetic_of(const std::vector<MeshSetting*>& meshes) {
  std::vector<std::string> parts;
  for (auto* mesh : meshes) {
    std::vector<std::string> factors;
    for (auto& axis : mesh->axes) factors.push_back(fmt::format("{} {}", axis.name, axis.size));
    std::string part = title_of(*mesh) + " " + fmt::format("{}", fmt::join(factors, " * "));
    if (mesh->axes.empty()) part += "has no axes: 1";
    if (factors.size() > 1) part += fmt::format(" = {}", product_of(*mesh));
    parts.push_back(part);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Gives the one axis that is -1 its size, and compares the sum of all meshes with the devices there are.
void settle_devices(Config& config, int64_t devices) {
  std::vector<MeshSetting*> meshes{&config.mesh};
  for (auto& mesh : config.meshes) meshes.push_back(&mesh);
  AxisSetting* open = nullptr;
  MeshSetting* open_mesh = nullptr;
  int64_t rest = devices;
  for (auto* mesh : meshes) {
    for (auto& axis : mesh->axes) {
      if (axis.size > 0) continue;
      if (open)
        throw Error(Code::usage, fmt::format("two axes are -1: '{}' and '{}'", open->name, axis.name), mesh->place,
                    "one axis at most is what is left of the devices");
      open = &axis, open_mesh = mesh;
    }
    int64_t product = product_of(*mesh);
    if (mesh != open_mesh) rest -= product;
  }
  if (open && devices == 0)
    throw Error(Code::usage, fmt::format("axis '{}' is -1, but the number of devices is not known", open->name),
                open_mesh->place, "write its size, or give --devices N");
  if (open) {
    int64_t others = product_of(*open_mesh);
    if (rest < others || rest % others != 0)
      throw Error(Code::usage, fmt::format("{} devices do not fit: {}", devices, arithmetic_of(meshes)),
                  open_mesh->place,
                  fmt::format("{} of them are left for {}, in multiples of {}", rest, title_of(*open_mesh), others));
    open->size = rest / others;
    product_of(*open_mesh);
  } else if (devices > 0 && rest != 0) {
    throw Error(Code::usage,
                fmt::format("the meshes need {} device{}, but there are {}: {}", devices_of(config),
                            devices_of(config) == 1 ? "" : "s", devices, arithmetic_of(meshes)),
                config.mesh.place.known() ? config.mesh.place : Place{config.file},
                "the product of the axes is the number of devices; one axis may be -1");
  }
}

void check_pipeline(const Config& config) {
  for (size_t a = 1; a < config.mesh.axes.size(); ++a)
    if (config.mesh.axes[a].name == "pp")
      throw Error(Code::usage, "'pp' must be the first axis", config.mesh.place,
                  "stages are the outermost links: write pp before the others");
  for (auto& mesh : config.meshes)
    if (has_axis(mesh, "pp"))
      throw Error(Code::usage, fmt::format("{} has an axis 'pp'", title_of(mesh)), mesh.place,
                  "only [mesh] is cut into stages");
}

void check_train(const Config& config) {
  auto& global = config.global_batch;
  auto& micro = config.micro_batch;
  if (global.value > 0 && micro.value > global.value)
    throw Error(Code::usage,
                fmt::format("micro_batch = {} is larger than global_batch = {}", micro.value, global.value),
                micro.place, "a step is cut into micro-batches");
}

void settle_zero(Config& config, const toml::table& root) {
  Place place = config.zero_stage.place;
  if (auto* axes = root["zero"]["axes"].node()) place = {config.file, int(axes->source().begin.line)};
  if (!config.zero_axes.empty() && !config.zero_stage.place.known())
    throw Error(Code::usage, "[zero] has axes but no stage", place, "write stage = 1");
  if (config.zero_stage.value > 0 && config.zero_axes.empty()) config.zero_axes = {"dp"};
  for (auto& axis : config.zero_axes)
    if (!has_axis(config.mesh, axis) || axis == "pp")
      throw Error(Code::usage,
                  fmt::format("[zero] is over axis {}, which [mesh] {}", shown(axis),
                              axis == "pp" ? "uses for stages" : "lacks"),
                  place, "name an axis that splits the batch, such as \"dp\"");
}

void check_match(const RuleSetting& rule, const Place& place) {
  if (rule.match.empty())
    throw Error(Code::usage, "the rule has no match", place, "write match = 'REGULAR EXPRESSION'; '.*' matches all");
  if (rule.match.size() > 256)
    throw Error(Code::usage, fmt::format("match has {} characters", rule.match.size()), place, "256 are allowed");
  try {
    std::regex compiled(rule.match);
  } catch (const std::regex_error& error) {
    throw Error(Code::usage, fmt::format("match = {} is no regular expression: {}", shown(rule.match), error.what()),
                place, "a plain '.' or '[' in a name is written '\\.' or '\\['");
  }
}

const MeshSetting& mesh_of(const Config& config, const RuleSetting& rule, const Place& place) {
  std::vector<std::string> names;
  for (auto& mesh : config.meshes) {
    if (mesh.name == rule.mesh) return mesh;
    names.push_back(mesh.name);
  }
  if (rule.mesh.empty()) return config.mesh;
  std::string near = nearest(rule.mesh, names);
  throw Error(Code::usage, fmt::format("there is no [mesh.{}]", shown(rule.mesh)), place,
              !near.empty()   ? fmt::format("did you mean '{}'?", near)
              : names.empty() ? fmt::format("describe it as [mesh.NAME]")
                              : fmt::format("there are: {}", fmt::join(names, ", ")));
}

void check_rule(const Config& config, const RuleSetting& rule, const toml::table& table) {
  auto place_of = [&](std::string_view key) {
    auto* node = table.get(key);
    return node ? Place{config.file, int(node->source().begin.line)} : rule.place;
  };
  check_match(rule, place_of("match"));
  auto& mesh = mesh_of(config, rule, place_of("mesh"));
  for (auto& [axis, sbp] : rule.sbp) {
    std::vector<std::string> names;
    for (auto& a : mesh.axes) names.push_back(a.name);
    if (axis == "pp" && has_axis(mesh, axis))
      throw Error(Code::usage, "the rule's sbp names 'pp'", place_of("sbp"), "stages are pinned with stage = N");
    if (!has_axis(mesh, axis))
      throw Error(Code::usage, fmt::format("the rule's sbp names axis {}, which {} lacks", shown(axis), title_of(mesh)),
                  place_of("sbp"),
                  names.empty() ? "the mesh has no axes" : fmt::format("its axes: {}", fmt::join(names, ", ")));
  }
  if (rule.stage < 0) return;
  int64_t stages = has_axis(mesh, "pp") ? mesh.axes[0].size : 0;
  if (rule.stage >= stages)
    throw Error(
        Code::usage, fmt::format("stage {} is none of the {} stages of {}", rule.stage, stages, title_of(mesh)),
        place_of("stage"),
        stages ? fmt::format("stages run from 0 to {}", stages - 1) : "stages are cut by an axis 'pp' of [mesh]");
}

void check_rules(const Config& config, const toml::table& root) {
  for (size_t i = 0; i < config.rules.size(); ++i) check_rule(config, config.rules[i], *root["rule"][i].as_table());
}

Config defaults() {
  Config config;
  for (auto& key : keys()) {
    if (key.section == "mesh" || key.section == "rule") continue;
    std::string text(key.fallback);
    std::visit(
        [&](auto member) {
          if constexpr (requires { (config.*member).value; }) {
            using T = std::decay_t<decltype((config.*member).value)>;
            if constexpr (std::is_same_v<T, std::string>) (config.*member).value = text.substr(1, text.size() - 2);
            if constexpr (std::is_same_v<T, bool>) (config.*member).value = text == "true";
            if constexpr (std::is_same_v<T, double>) (config.*member).value = std::stod(text);
            if constexpr (std::is_same_v<T, int64_t>) (config.*member).value = std::stoll(text);
          }
        },
        key.member);
  }
  return config;
}

}  // namespace

Config default_config() { return defaults(); }

Config parse_config(std::string_view text, const std::string& file, int64_t devices) {
  Config config = defaults();
  config.file = file;
  toml::table root = parse_toml(text, file);
  for (auto& entry : entries_of(root, file)) read_top(config, entry);
  settle_devices(config, devices);
  check_pipeline(config);
  check_train(config);
  settle_zero(config, root);
  check_rules(config, root);
  for (auto& path : config.plugins) path = (std::filesystem::path(file).parent_path() / path).string();
  return config;
}

Config load_config(const std::string& file, int64_t devices) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    throw Error(Code::usage, std::filesystem::exists(file, error) ? "this is no plain file" : "no such file", {file},
                "give the path of a TOML file");
  std::ifstream in(file, std::ios::binary);
  std::string text(file_bytes_max + 1, '\0');
  in.read(text.data(), std::streamsize(text.size()));
  text.resize(size_t(in.gcount()));
  if (in.bad() || (in.fail() && !in.eof())) throw Error(Code::usage, "the file cannot be read", {file});
  return parse_config(text, file, devices);
}

int64_t devices_of(const Config& config) {
  int64_t devices = product_of(config.mesh);
  for (auto& mesh : config.meshes) devices += product_of(mesh);
  return devices;
}

}  // namespace sluice
