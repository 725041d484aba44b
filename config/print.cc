// SPDX-License-Identifier: Apache-2.0
// Printing: what holds now, as a complete file, and what could be said, as a reference.
#include <fmt/format.h>

#include <algorithm>

#include "config/keys.h"

namespace sluice {
namespace {

// A TOML basic string.
std::string text_of(const std::string& value) {
  std::string out = "\"";
  for (char c : value) {
    auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (u < 0x20 || u == 0x7F)
      out += fmt::format("\\u{:04X}", u);
    else
      out += c;
  }
  return out + "\"";
}
std::string text_of(int64_t value) { return std::to_string(value); }
std::string text_of(bool value) { return value ? "true" : "false"; }
// The shortest text that reads back as the same number; always a float to TOML.
std::string text_of(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}
std::string text_of(const std::vector<std::string>& values) {
  std::string out = "[";
  for (auto& value : values) out += (out.size() > 1 ? ", " : "") + text_of(value);
  return out + "]";
}
// Names of axes are checked to be bare keys; those of meshes may be any.
std::string text_of(const std::vector<AxisSetting>& axes) {
  std::string out;
  for (auto& axis : axes) out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", axis.name, axis.size);
  return out.empty() ? "{}" : "{ " + out + " }";
}
std::string text_of(const SbpSettings& sbp) {
  std::string out;
  for (auto& [axis, value] : sbp)
    out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", text_of(axis), text_of(value));
  return out.empty() ? "{}" : "{ " + out + " }";
}
template <class T>
std::string text_of(const Setting<T>& setting) {
  return text_of(setting.value);
}

// A path may hold anything; a comment must stay on its line.
std::string comment_of(const Place& place) {
  std::string text = place.known() ? place.text() : "default";
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return "  # " + text;
}

// One line a key: its value and where it comes from; a comment where nothing is set.
template <class T>
std::string lines_of(const T& object, std::string_view section) {
  std::string out;
  for (auto& key : keys()) {
    if (key.section != section) continue;
    std::visit(
        [&](auto member) {
          if constexpr (requires { object.*member; }) {
            std::string text = text_of(object.*member), origin;
            if constexpr (requires { (object.*member).place; }) origin = comment_of((object.*member).place);
            if (text != key.fallback || key.unset.empty())
              out += fmt::format("{} = {}{}\n", key.name, text, origin);
            else
              out += fmt::format("# {} is not set: {}\n", key.name, key.unset);
          }
        },
        key.member);
  }
  return out;
}

std::string allowed_of(const Key& key) {
  if (!key.allowed.empty()) return fmt::format(" ({})", fmt::join(words_of(key.allowed), " | "));
  if (key.type != "integer" && key.type != "float") return "";
  return " (" + text_of_range(key) + ")";
}

std::string fallback_of(const Key& key) {
  if (key.name == "match") return "required";
  return key.unset.empty() ? fmt::format("default {}", key.fallback) : fmt::format("when not set: {}", key.unset);
}

// Lines of at most 110 columns, indented.
std::string wrapped(std::string_view text) {
  std::string out, line;
  while (!text.empty()) {
    size_t end = std::min(text.find(' '), text.size());
    if (line.size() + end > 105) out += "    " + line + "\n", line.clear();
    line += (line.empty() ? "" : " ") + std::string(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + "    " + line + "\n";
}

}  // namespace

std::string text_of(const Config& config) {
  std::string out;
  for (auto& section : sections()) {
    if (names_in(section).empty()) continue;
    if (section == "mesh") {
      out += "[mesh]\n" + lines_of(config.mesh, "mesh");
      for (auto& mesh : config.meshes) out += fmt::format("\n[mesh.{}]\n", text_of(mesh.name)) + lines_of(mesh, "mesh");
    } else if (section == "rule") {
      for (auto& rule : config.rules) out += "\n[[rule]]\n" + lines_of(rule, "rule");
    } else {
      out += fmt::format("\n[{}]\n", section) + lines_of(config, section);
    }
  }
  return out;
}

std::string config_schema() {
  std::string out = "# Every key, with its type and its default.\n";
  for (auto& section : sections()) {
    auto title = section == "rule" ? "[[rule]]" : "[" + section + "]";
    if (names_in(section).empty()) continue;
    out += fmt::format("\n{}{}\n", title, section == "mesh" ? "  # and [mesh.NAME]" : "");
    for (auto& key : keys()) {
      if (key.section != section || key.member.index() == 0) continue;
      out += fmt::format("{}: {}{}, {}\n{}", key.name, key.type, allowed_of(key), fallback_of(key), wrapped(key.doc));
    }
  }
  return out;
}

}  // namespace sluice
