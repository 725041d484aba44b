// SPDX-License-Identifier: Apache-2.0
#include "graph/wire.h"

#include <capnp/serialize.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sluice::wire {
namespace {

constexpr size_t head_bytes = 16;

template <class Builder>
void put_shape(Builder list, const Shape& shape) {
  put_all(list, shape);
}

sluice::DType get_dtype(ElementType type) {
  if (size_t(type) >= dtype_names.size()) throw Error(Code::io, "it holds an element type that this version lacks");
  return sluice::DType(type);
}

Shape get_shape(capnp::List<Dim>::Reader list) {
  if (list.size() > rank_max) throw Error(Code::io, fmt::format("it holds a shape of {} dims", list.size()));
  return get_all(list);
}

}  // namespace

std::vector<std::byte> seal(std::string_view magic, kj::Array<capnp::word> canonical) {
  check(magic.size() == 8, "a frame's magic has eight bytes");
  auto payload = canonical.asBytes();
  std::vector<std::byte> bytes(head_bytes + payload.size());
  uint64_t sum = XXH64(payload.begin(), payload.size(), 0);
  std::memcpy(bytes.data(), magic.data(), 8);
  std::memcpy(bytes.data() + 8, &sum, 8);
  std::memcpy(bytes.data() + head_bytes, payload.begin(), payload.size());
  return bytes;
}

void open(std::string_view magic, std::string_view what, std::span<const std::byte> bytes,
          const std::function<void(capnp::MessageReader&)>& read) {
  auto refuse = [&](std::string_view why) {
    throw Error(Code::io, fmt::format("this is no {} that can be read: {}", what, why));
  };
  if (bytes.size() < head_bytes || std::memcmp(bytes.data(), magic.data(), 8) != 0)
    refuse(fmt::format("it does not start with {}", magic));
  auto payload = bytes.subspan(head_bytes);
  if (payload.size() % 8 != 0 || payload.empty() || payload.size() > frame_bytes_max) refuse("its length is wrong");
  uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + 8, 8);
  if (sum != XXH64(payload.data(), payload.size(), 0)) refuse("its checksum is wrong: it is cut or corrupt");
  auto words = kj::heapArray<capnp::word>(payload.size() / 8);  // aligned, which the span need not be
  std::memcpy(words.begin(), payload.data(), payload.size());
  kj::ArrayPtr<const capnp::word> segment = words;
  // Each object is read once; the slack is for lists whose elements are shorter than a word.
  capnp::ReaderOptions limits{.traversalLimitInWords = 2 * words.size() + 1024, .nestingLimit = 16};
  try {
    capnp::SegmentArrayMessageReader reader(kj::arrayPtr(&segment, 1), limits);
    read(reader);
  } catch (const kj::Exception& error) {
    refuse(error.getDescription().cStr());
  } catch (const Error& error) {
    refuse(error.message());
  }
}

void put(Dim::Builder to, const sluice::Dim& from) {
  to.setSize(from.size);
  to.setSym(from.sym);
  to.setGranule(from.granule);
}
sluice::Dim get(Dim::Reader from) { return {from.getSize(), from.getSym(), from.getGranule()}; }

void put(Type::Builder to, const LogicalType& from) {
  to.setDtype(ElementType(from.dtype));
  put_shape(to.initShape(unsigned(from.shape.size())), from.shape);
}
LogicalType get(Type::Reader from) { return {get_dtype(from.getDtype()), get_shape(from.getShape())}; }

void put(Attr::Builder to, const sluice::Attr& from) {
  struct Put {
    Attr::Builder& to;
    void operator()(bool v) const { to.setBoolean(v); }
    void operator()(int64_t v) const { to.setInteger(v); }
    void operator()(double v) const { to.setReal(v); }
    void operator()(const std::string& v) const { to.setText(text(v)); }
    void operator()(const std::vector<int64_t>& v) const {
      put_numbers<int64_t>(to.initIntegers(unsigned(v.size())), v);
    }
    void operator()(const Shape& v) const { put_shape(to.initShape(unsigned(v.size())), v); }
    void operator()(DType v) const { to.setDtype(ElementType(v)); }
  };
  to.setName(text(from.name));
  std::visit(Put{to}, from.value);
}
sluice::Attr get(Attr::Reader from) {
  auto name = text(from.getName());
  switch (from.which()) {
    case Attr::BOOLEAN: return {name, from.getBoolean()};
    case Attr::INTEGER: return {name, int64_t(from.getInteger())};
    case Attr::REAL: return {name, from.getReal()};
    case Attr::TEXT: return {name, text(from.getText())};
    case Attr::INTEGERS: return {name, get_all(from.getIntegers(), [](int64_t v) { return v; })};
    case Attr::SHAPE: return {name, get_shape(from.getShape())};
    case Attr::DTYPE: return {name, get_dtype(from.getDtype())};
  }
  throw Error(Code::io, "it holds a kind of attribute that this version lacks");
}

void put(Place::Builder to, const sluice::Place& from) {
  to.setFile(text(from.file));
  to.setLine(from.line);
}
sluice::Place get(Place::Reader from) { return {text(from.getFile()), from.getLine()}; }

void put(Source::Builder to, const sluice::Source& from) {
  to.setReader(text(from.reader));
  put_all(to.initAttrs(unsigned(from.attrs.size())), from.attrs);
  to.setFixed(!from.shuffle);
}
sluice::Source get(Source::Reader from) { return {text(from.getReader()), get_all(from.getAttrs()), !from.getFixed()}; }

sluice::Phase get(Phase from) {
  if (size_t(from) > size_t(sluice::Phase::optimizer))
    throw Error(Code::io, "it holds a phase that this version lacks");
  return sluice::Phase(from);
}

}  // namespace sluice::wire
