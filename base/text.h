// SPDX-License-Identifier: Apache-2.0
// Words of the text forms: a name stands bare where it can, and in quotes where it cannot.
// A quoted word is one line of printable bytes whatever it holds: \" \\ \n \r \t and \xHH for other control bytes.
// Invariant: unquote(quote(s)) == s for every string of bytes.
// Thread rule: pure functions.
#pragma once
#include <string>
#include <string_view>

namespace sluice {

std::string quote(std::string_view s);
std::string unquote(std::string_view text);  // throws Error: no closing quote, or an escape that is none
bool is_plain(std::string_view word);        // letters, digits and _ . / : + - @ only, and at least one
std::string word_of(std::string_view name);  // the name itself where it is plain, else quoted

}  // namespace sluice
