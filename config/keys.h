// SPDX-License-Identifier: Apache-2.0
// The one table of keys: what the parser accepts, what `print` writes and what `schema` explains. To add a key: a
// field in config.h and a row in keys.cc.
// Invariant: `fallback` of a key is text that the key's own type parses; a fallback outside the key's range stands
// for "not set", which is then explained by `unset`.
// Thread rule: constants.
#pragma once
#include <limits>
#include <span>
#include <string_view>
#include <variant>

#include "config/config.h"

namespace sluice {

using SbpSettings = std::map<std::string, std::string>;

// Where a key's value goes. monostate: in the design, not supported yet.
using Member = std::variant<std::monostate, Setting<int64_t> Config::*, Setting<double> Config::*,
                            Setting<bool> Config::*, Setting<std::string> Config::*, std::vector<std::string> Config::*,
                            std::vector<AxisSetting> MeshSetting::*, std::string MeshSetting::*,
                            std::string RuleSetting::*, int64_t RuleSetting::*, SbpSettings RuleSetting::*>;

struct Key {
  std::string_view section;  // "train"; "mesh" also stands for every [mesh.NAME]; "rule" for every [[rule]]
  std::string_view name;
  std::string_view type;  // as users read it: "integer", "list of strings"
  Member member;
  std::string_view fallback;  // TOML text
  std::string_view doc;
  double min = std::numeric_limits<double>::lowest(), max = std::numeric_limits<double>::max();
  std::string_view allowed = {};  // of text: words separated by '|'
  std::string_view later = {};    // of text: words of the design that are not supported yet
  std::string_view unset = {};    // what holds while the key is not set
};

std::span<const Key> keys();
const Key* find_key(std::string_view section, std::string_view name);
std::vector<std::string> sections();                          // each once, in the table's order
std::vector<std::string> names_in(std::string_view section);  // supported keys only
// Ranges are printed as users write them: "1 or more", "0 to 64".
std::string text_of_range(const Key& key);
std::vector<std::string> words_of(std::string_view list);  // split at '|'

}  // namespace sluice
