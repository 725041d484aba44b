// SPDX-License-Identifier: Apache-2.0
// A JSON text as events, without a tree: memory follows what the handler keeps, not what a hostile text nests.
// A handler overrides the events that it allows; all others are refused.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sluice {

class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  // "" or what is wrong with the text.
  std::string read(std::string_view text) {
    bool whole = nlohmann::json::sax_parse(text.begin(), text.end(), this);
    return whole ? "" : problem_.empty() ? "its JSON ends too early" : problem_;
  }

  bool null() override { return refuse("null is where no null belongs"); }
  bool boolean(bool) override { return refuse("a truth value is where none belongs"); }
  bool number_integer(int64_t) override { return refuse("a negative number is where none belongs"); }
  bool number_unsigned(uint64_t) override { return refuse("a number is where none belongs"); }
  bool number_float(double, const std::string&) override { return refuse("a number is too large or no integer"); }
  bool string(std::string&) override { return refuse("a text is where none belongs"); }
  bool binary(binary_t&) override { return refuse("bytes are where none belong"); }
  bool start_array(size_t) override { return refuse("a list is where none belongs"); }
  bool end_array() override { return true; }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    return refuse("its JSON is malformed at byte " + std::to_string(at));
  }

 protected:
  bool refuse(std::string what) {
    problem_ = std::move(what);
    return false;
  }

 private:
  std::string problem_;
};

}  // namespace sluice
