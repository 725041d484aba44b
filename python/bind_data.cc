// SPDX-License-Identifier: Apache-2.0
// Readers of data sets and the order of their rows.
#include <fmt/format.h>

#include <cstring>

#include "checkpoint/safetensors.h"
#include "data/reader.h"
#include "python/convert.h"

namespace sluice {
namespace {

using ReaderPtr = std::shared_ptr<const Reader>;
struct OpenReader {
  ReaderPtr reader;
};

OpenReader open_reader(const TableSet& set, const std::string& name, const nb::dict& values) {
  const ReaderDef* found = nullptr;
  for (auto* def : set.tables.readers)
    if (def->name == name) found = def;
  if (!found) throw Error(Code::not_found, fmt::format("there is no reader '{}'", name));
  Attrs attrs;
  for (auto [key, value] : values) {
    std::string attr = nb::cast<std::string>(key);
    if (nb::isinstance<nb::int_>(value))
      attrs.push_back({attr, nb::cast<int64_t>(value)});
    else
      attrs.push_back({attr, nb::cast<std::string>(value)});
  }
  return with_files([&] { return OpenReader{found->open(attrs)}; });
}

// (name, dtype, dims of one row)
nb::list fields_of(const OpenReader& open) {
  nb::list result;
  for (auto& field : open.reader->fields())
    result.append(nb::make_tuple(field.name, std::string(name_of(field.dtype)), nb::tuple(nb::cast(field.row_dims))));
  return result;
}

nb::object read_rows(const OpenReader& open, int field, const std::vector<int64_t>& rows) {
  auto& fields = open.reader->fields();
  if (field < 0 || size_t(field) >= fields.size()) throw Error(Code::index, fmt::format("there is no field {}", field));
  for (int64_t row : rows)
    if (row < 0 || row >= open.reader->rows()) throw Error(Code::index, fmt::format("there is no row {}", row));
  auto array = std::make_shared<HostArray>();
  array->dtype = fields[size_t(field)].dtype;
  array->dims = fields[size_t(field)].row_dims;
  array->dims.insert(array->dims.begin(), int64_t(rows.size()));
  array->data.resize(size_t(numel(fixed_shape(array->dims)) * bytes_of(array->dtype)));
  open.reader->read(field, rows, array->data.data());
  return numpy_array(array);
}

std::vector<int64_t> rows_at(int64_t begin, int64_t count, int64_t rows, bool shuffle, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> result;
  if (count < 0 || begin < 0 || begin + count > rows) throw Error(Code::index, "a batch lies outside of the data set");
  for (int64_t i = 0; i < count; ++i) result.push_back(row_at(begin + i, rows, shuffle, seed, epoch));
  return result;
}

void save_safetensors(const nb::dict& tensors, const std::string& path) {
  std::vector<HostArray> held;
  std::vector<NamedArray> arrays;
  held.reserve(nb::len(tensors));
  for (auto [name, value] : tensors) {
    held.push_back(host_array(nb::cast<AnyArray>(value)));
    auto& array = held.back();
    arrays.push_back({nb::cast<std::string>(name), array.dtype, array.dims, array.data});
  }
  nb::gil_scoped_release unlocked;
  write_safetensors(path, arrays);
}

nb::dict load_safetensors(const std::string& path) {
  Checkpoint checkpoint = with_files([&] { return Checkpoint(path); });
  nb::dict result;
  for (auto& array : checkpoint.arrays()) {
    auto copy = std::make_shared<HostArray>();
    copy->dtype = array.dtype;
    copy->dims = array.dims;
    copy->data.assign(array.bytes.begin(), array.bytes.end());
    result[array.name.c_str()] = numpy_array(copy);
  }
  return result;
}

}  // namespace

void bind_data(nb::module_& m) {
  nb::class_<OpenReader>(m, "Reader", "An open data set.")
      .def_prop_ro("rows", [](const OpenReader& o) { return o.reader->rows(); })
      .def_prop_ro("fields", fields_of)
      .def("read", read_rows, nb::sig("def read(self, field: int, rows: list[int]) -> typing.Any"));
  m.def("open_reader", open_reader);
  m.def("save_safetensors", save_safetensors);
  m.def("load_safetensors", load_safetensors);
  m.def("rows_at", rows_at, "Rows of one batch in the order of an epoch.");
}

}  // namespace sluice
