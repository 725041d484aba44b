// SPDX-License-Identifier: Apache-2.0
#include "config/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

std::string_view name_of_type(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "an array";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a float";
    case toml::node_type::boolean: return "a boolean";
    default: return "a date or time";
  }
}

void check_range(double value, const std::string& text, const Key& key, const Entry& entry) {
  if (value >= key.min && value <= key.max) return;
  throw Error(Code::usage, fmt::format("{} is {}; it must be {}", shown(entry.name), text, text_of_range(key)),
              entry.place, key.unset.empty() ? "" : fmt::format("leave it out for: {}", key.unset));
}

void check_word(const std::string& value, const Key& key, const Entry& entry) {
  if (key.allowed.empty()) return;
  auto words = words_of(key.allowed), later = words_of(key.later);
  if (std::find(words.begin(), words.end(), value) != words.end()) return;
  std::string all = fmt::format("{}", fmt::join(words, ", "));
  if (std::find(later.begin(), later.end(), value) != later.end())
    refuse_later(fmt::format("{} = {} (there are: {})", entry.name, shown(value), all), entry.place);
  std::string near = nearest(value, words);
  throw Error(Code::usage, fmt::format("{} is no {}; there are: {}", shown(value), entry.name, all), entry.place,
              near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

std::string text_in(const toml::node& node, const Entry& entry, std::string_view expected) {
  if (!node.is_string()) refuse_type({entry.name, entry.place, &node}, expected);
  const std::string& text = node.as_string()->get();
  if (text.size() > 4096 || text.find('\0') != std::string::npos)
    throw Error(Code::usage, fmt::format("{} holds a text that is too long or has a zero byte", shown(entry.name)),
                entry.place);
  return text;
}

}  // namespace

std::string shown(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (out.size() >= 60 && (static_cast<unsigned char>(c) & 0xC0) != 0x80) {  // never inside a UTF-8 sequence
      out += "...";
      break;
    }
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  }
  return "'" + out + "'";
}

std::vector<Entry> entries_of(const toml::table& table, const std::string& file) {
  std::vector<std::pair<toml::source_position, Entry>> found;
  for (auto&& [key, node] : table) {
    auto at = key.source().begin;
    found.push_back({at, {std::string(key.str()), {file, int(at.line)}, &node}});
  }
  std::sort(found.begin(), found.end(), [](auto& a, auto& b) { return a.first < b.first; });
  std::vector<Entry> entries;
  for (auto& [at, entry] : found) entries.push_back(std::move(entry));
  return entries;
}

std::string title_of(std::string_view section) {
  if (section == "rule" || section == "embedding") return fmt::format("[[{}]]", section);
  return fmt::format("[{}]", section);
}

void refuse_unknown(const Entry& entry, std::string_view section, const std::string& title) {
  auto names = names_in(section);
  std::string next = fmt::format("{} has: {}", title, fmt::join(names, ", "));
  std::string near = nearest(entry.name, names), home;
  for (auto& key : keys())
    if (key.name == entry.name && home.empty()) home = key.section;
  if (!near.empty())
    next = fmt::format("did you mean '{}'?", near);
  else if (!home.empty())
    next = fmt::format("'{}' belongs to {}", entry.name, title_of(home));
  else if (section == "mesh" && entry.node->is_integer())
    next = fmt::format("write axes = {{ {} = {} }}", entry.name, entry.node->as_integer()->get());
  throw Error(Code::usage, fmt::format("unknown key {} in {}", shown(entry.name), title), entry.place, next);
}

void refuse_later(const std::string& what, const Place& place) {
  throw Error(Code::usage, what + " is not supported yet", place, "leave it out");
}

void refuse_type(const Entry& entry, std::string_view expected) {
  throw Error(Code::usage,
              fmt::format("{}: expected {}, found {}", shown(entry.name), expected, name_of_type(*entry.node)),
              entry.place);
}

const toml::table& table_of(const Entry& entry) {
  if (!entry.node->is_table()) refuse_type(entry, "a table");
  return *entry.node->as_table();
}

void assign(int64_t& to, const Key& key, const Entry& entry) {
  auto* word = entry.node->as_string();
  if (word && word->get() == "async" && entry.name == "staleness") refuse_later("staleness = \"async\"", entry.place);
  if (!entry.node->is_integer()) refuse_type(entry, "an integer");
  to = entry.node->as_integer()->get();
  check_range(double(to), std::to_string(to), key, entry);
}

void assign(double& to, const Key& key, const Entry& entry) {
  auto value = entry.node->is_number() ? entry.node->value<double>() : std::nullopt;
  if (!value) refuse_type(entry, "a number");
  to = *value;
  check_range(to, fmt::format("{}", to), key, entry);  // a NaN is in no range
}

void assign(bool& to, const Key&, const Entry& entry) {
  if (!entry.node->is_boolean()) refuse_type(entry, "true or false");
  to = entry.node->as_boolean()->get();
}

void assign(std::string& to, const Key& key, const Entry& entry) {
  to = text_in(*entry.node, entry, "a string");
  check_word(to, key, entry);
}

void assign(std::vector<std::string>& to, const Key&, const Entry& entry) {
  if (!entry.node->is_array()) refuse_type(entry, "a list of strings");
  for (auto& node : *entry.node->as_array()) to.push_back(text_in(node, entry, "a list of strings only"));
}

void assign(std::vector<AxisSetting>& to, const Key& key, const Entry& entry) {
  for (auto& axis : entries_of(table_of(entry), entry.place.file)) {
    auto named = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    if (axis.name.empty() || axis.name.size() > 32 || !std::all_of(axis.name.begin(), axis.name.end(), named))
      throw Error(Code::usage, fmt::format("{} is no name of an axis", shown(axis.name)), axis.place,
                  "use letters, digits and '_', at most 32 of them");
    if (!axis.node->is_integer()) refuse_type(axis, "an integer");
    int64_t size = axis.node->as_integer()->get();
    if (size < -1 || size == 0 || double(size) > key.max)
      throw Error(Code::usage, fmt::format("axis {} has size {}", shown(axis.name), size), axis.place,
                  fmt::format("a size is 1 to {}, or -1 for what is left of the devices", key.max));
    to.push_back({axis.name, size});
  }
  if (to.size() > 8)
    throw Error(Code::usage, fmt::format("the mesh has {} axes", to.size()), entry.place, "a mesh has 8 at most");
}

void assign(SbpSettings& to, const Key&, const Entry& entry) {
  for (auto& axis : entries_of(table_of(entry), entry.place.file)) {
    std::string sbp = text_in(*axis.node, axis, "a string such as \"S(0)\"");
    bool split = sbp.size() == 4 && sbp.starts_with("S(") && sbp[2] >= '0' && sbp[2] <= '7' && sbp[3] == ')';
    if (!split && sbp != "B" && sbp != "P")
      throw Error(Code::usage, fmt::format("{} on axis {} is no SBP", shown(sbp), shown(axis.name)), axis.place,
                  "write \"S(dim)\" with dim from 0 to 7, \"B\" or \"P\"");
    to[axis.name] = sbp;
  }
}

}  // namespace sluice
