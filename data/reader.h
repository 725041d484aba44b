// SPDX-License-Identifier: Apache-2.0
// Readers: random access to the rows of a data set. One ReaderDef a file in data/readers/.
// The order of rows is a permutation of [0, rows()) by (seed, epoch), computed alike on every rank.
// Thread rule: a Reader is opened once a process; read() may be called from several threads at once.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace sluice {

struct Field {
  std::string name;
  DType dtype = DType::float32;
  std::vector<int64_t> row_dims;  // of one row
};

class Reader {
 public:
  virtual ~Reader() = default;
  virtual int64_t rows() const = 0;
  virtual const std::vector<Field>& fields() const = 0;
  // Copies the given rows of one field, densely, into `to`.
  virtual void read(int field, std::span<const int64_t> rows, void* to) const = 0;
};

struct ReaderDef {
  std::string_view name, doc;
  std::span<const std::string_view> attrs;  // names of its (string or integer) attributes
  // Throws Error(not_found | io) that names the file and what is wrong with it.
  std::shared_ptr<const Reader> (*open)(const Attrs& attrs) = nullptr;
};
std::span<const ReaderDef* const> builtin_readers();  // written by CMake from data/readers/*.cc

// The row at `position` of the epoch's order: the identity when not shuffled, else a keyed bijection (cycle-walking
// Feistel network on Philox), so no rank ever holds the whole permutation.
int64_t row_at(int64_t position, int64_t rows, bool shuffle, uint64_t seed, int64_t epoch);

}  // namespace sluice
