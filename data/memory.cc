// SPDX-License-Identifier: Apache-2.0
#include "data/memory.h"

#include <cstring>

#include "base/error.h"
#include "data/rows.h"

namespace sluice {

namespace {

size_t row_bytes(const Field& field) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(numel(fixed_shape(field.row_dims)), bytes_of(field.dtype), &bytes))
    throw Error(Code::value, "a row of the field '" + field.name + "' has too many elements");
  return size_t(bytes);
}

class MemoryReader final : public Reader {
 public:
  MemoryReader(std::vector<Field> fields, std::vector<std::vector<std::byte>> arrays, int64_t rows)
      : fields_(std::move(fields)), arrays_(std::move(arrays)), rows_(rows) {}
  int64_t rows() const override { return rows_; }
  const std::vector<Field>& fields() const override { return fields_; }

  void read(int field, std::span<const int64_t> rows, void* to) const override {
    check_rows(*this, field, rows);
    size_t bytes = row_bytes(fields_[size_t(field)]);
    auto* at = static_cast<std::byte*>(to);
    for (int64_t row : rows) {
      std::memcpy(at, arrays_[size_t(field)].data() + size_t(row) * bytes, bytes);
      at += bytes;
    }
  }

 private:
  std::vector<Field> fields_;
  std::vector<std::vector<std::byte>> arrays_;
  int64_t rows_ = 0;
};

}  // namespace

void check_rows(const Reader& reader, int field, std::span<const int64_t> rows) {
  if (field < 0 || size_t(field) >= reader.fields().size())
    throw Error(Code::index, "a data set of " + std::to_string(reader.fields().size()) + " fields has no field " +
                                 std::to_string(field));
  for (int64_t row : rows)
    if (row < 0 || row >= reader.rows())
      throw Error(Code::index,
                  "a data set of " + std::to_string(reader.rows()) + " rows has no row " + std::to_string(row));
}

std::shared_ptr<const Reader> make_memory_reader(std::vector<Field> fields,
                                                 std::vector<std::vector<std::byte>> arrays) {
  if (fields.empty() || fields.size() != arrays.size())
    throw Error(Code::value, std::to_string(fields.size()) + " fields and " + std::to_string(arrays.size()) +
                                 " arrays make no data set");
  int64_t rows = -1;
  for (size_t i = 0; i < fields.size(); ++i) {
    size_t bytes = row_bytes(fields[i]);
    if (bytes == 0 || arrays[i].empty() || arrays[i].size() % bytes != 0)
      throw Error(Code::value, "the field '" + fields[i].name + "' has no whole number of rows: " +
                                   std::to_string(arrays[i].size()) + " bytes in rows of " + std::to_string(bytes));
    auto count = int64_t(arrays[i].size() / bytes);
    if (rows >= 0 && count != rows)
      throw Error(Code::value, "the field '" + fields[i].name + "' has " + std::to_string(count) +
                                   " rows, the field '" + fields[0].name + "' has " + std::to_string(rows));
    rows = count;
  }
  return std::make_shared<MemoryReader>(std::move(fields), std::move(arrays), rows);
}

}  // namespace sluice
