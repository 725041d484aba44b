// SPDX-License-Identifier: Apache-2.0
// From TOML values to settings: types, ranges and allowed words of single keys. What needs more than one key is
// config.cc's.
// Thread rule: pure functions.
#pragma once
#include <toml++/toml.h>

#include "config/keys.h"

namespace sluice {

struct Entry {
  std::string name;  // as written
  Place place;
  const toml::node* node = nullptr;
};

// Text from a file, made fit for a message: no control characters, at most 60 bytes.
std::string shown(std::string_view text);
// The entries of a table in the file's order (toml++ sorts by name).
std::vector<Entry> entries_of(const toml::table& table, const std::string& file);
// "[mesh.servers]", "[[rule]]", "[train]".
std::string title_of(std::string_view section);
// Refuses a key that the table lacks: with the nearest, or the section that has it, or all that there are.
[[noreturn]] void refuse_unknown(const Entry& entry, std::string_view section, const std::string& title);
[[noreturn]] void refuse_later(const std::string& what, const Place& place);
[[noreturn]] void refuse_type(const Entry& entry, std::string_view expected);
const toml::table& table_of(const Entry& entry);

void assign(int64_t& to, const Key& key, const Entry& entry);
void assign(double& to, const Key& key, const Entry& entry);
void assign(bool& to, const Key& key, const Entry& entry);
void assign(std::string& to, const Key& key, const Entry& entry);
void assign(std::vector<std::string>& to, const Key& key, const Entry& entry);
void assign(std::vector<AxisSetting>& to, const Key& key, const Entry& entry);
void assign(SbpSettings& to, const Key& key, const Entry& entry);
template <class T>
void assign(Setting<T>& to, const Key& key, const Entry& entry) {
  assign(to.value, key, entry);
  to.place = entry.place;
}

// Reads one entry of `section` into the member of `object` that the table of keys names.
template <class T>
void read_entry(T& object, std::string_view section, const std::string& title, const Entry& entry) {
  const Key* key = find_key(section, entry.name);
  if (!key) refuse_unknown(entry, section, title);
  std::visit(
      [&](auto member) {
        if constexpr (requires { object.*member; })
          assign(object.*member, *key, entry);
        else
          refuse_later("'" + entry.name + "' in " + title, entry.place);
      },
      key->member);
}

}  // namespace sluice
