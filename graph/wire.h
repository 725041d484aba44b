// SPDX-License-Identifier: Apache-2.0
// The shared part of our Cap'n Proto forms (job.capnp, plan.capnp): frames, and the values that both hold.
// Only .cc files include this: it costs seconds to compile.
// A reader of hostile bytes: everything is bounded by the frame's size, and each kj::Exception becomes Error(io).
// Invariant: put and get are inverse; equal values are equal bytes.
// Thread rule: pure functions.
#pragma once
#include <capnp/message.h>
#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/job.capnp.h"

namespace sluice::wire {

inline constexpr size_t frame_bytes_max = size_t(1) << 30;

// magic (8 bytes) + xxHash64 of the rest + the canonical message of one segment.
std::vector<std::byte> seal(std::string_view magic, kj::Array<capnp::word> canonical);
template <class Root>
std::vector<std::byte> seal(std::string_view magic, capnp::MessageBuilder& message) {
  return seal(magic, capnp::canonicalize(message.getRoot<Root>().asReader()));
}
// Runs `read` on the message inside a frame. `what` is the thing's name in errors: "job file".
void open(std::string_view magic, std::string_view what, std::span<const std::byte> bytes,
          const std::function<void(capnp::MessageReader&)>& read);

inline capnp::Text::Reader text(const std::string& s) { return {s.data(), s.size()}; }
inline std::string text(capnp::Text::Reader s) { return {s.begin(), s.size()}; }

void put(Dim::Builder to, const sluice::Dim& from);
void put(Type::Builder to, const LogicalType& from);
void put(Attr::Builder to, const sluice::Attr& from);
void put(Place::Builder to, const sluice::Place& from);
void put(Source::Builder to, const sluice::Source& from);
sluice::Dim get(Dim::Reader from);
LogicalType get(Type::Reader from);
sluice::Attr get(Attr::Reader from);
sluice::Place get(Place::Reader from);
sluice::Source get(Source::Reader from);
sluice::Phase get(Phase from);

// Lists of structs, with put and get of the element found by its type; lists of numbers.
template <class List, class Items, class Put>
void put_all(List to, const Items& items, Put put) {
  for (size_t i = 0; i < items.size(); ++i) put(to[unsigned(i)], items[i]);
}
template <class List, class Items>
void put_all(List to, const Items& items) {
  put_all(to, items, [](auto to, auto& from) { put(to, from); });
}
template <class T>
void put_numbers(typename capnp::List<T>::Builder to, const std::vector<T>& items) {
  for (size_t i = 0; i < items.size(); ++i) to.set(unsigned(i), items[i]);
}
// The list's elements lie in the frame (the reader counts those of size 0 too), so reserving is bounded by it.
template <class List, class Get>
auto get_all(List from, Get get) {
  std::vector<decltype(get(from[0]))> items;
  items.reserve(from.size());
  for (auto item : from) items.push_back(get(item));
  return items;
}
template <class List>
auto get_all(List from) {
  return get_all(from, [](auto item) { return get(item); });
}
template <class List>
auto get_numbers(List from) {
  return get_all(from, [](auto item) { return item; });
}

}  // namespace sluice::wire
