// SPDX-License-Identifier: Apache-2.0
// Runs one op on values, for the tests of this room.
#pragma once
#include <cstring>
#include <vector>

#include "kernels/op.h"

namespace sluice {

// A whole tensor, or the box of one that begins at `origin`.
struct Value {
  LogicalType type;                   // of the whole tensor
  std::vector<int64_t> dims, origin;  // of this part
  bool col = false;
  std::vector<std::byte> bytes;

  template <class T>
  static Value of(std::vector<int64_t> dims, const std::vector<T>& values) {
    Value value = empty({dtype_of<T>(), fixed_shape(dims)});
    check(size_t(numel(value.type.shape)) == values.size(), "a test value of another size than its shape");
    if (!values.empty()) std::memcpy(value.bytes.data(), values.data(), value.bytes.size());
    return value;
  }
  static Value empty(const LogicalType& type) {
    auto dims = sizes_of(type.shape);
    return part(type, dims, std::vector<int64_t>(dims.size(), 0));
  }
  static Value part(const LogicalType& type, std::vector<int64_t> dims, std::vector<int64_t> origin) {
    Value value{type, std::move(dims), std::move(origin), false, {}};
    value.bytes.resize(size_t(value.view().numel() * bytes_of(type.dtype)), std::byte(0xAB));
    return value;
  }
  View view() {
    View view{bytes.data(), type.dtype, int(dims.size()), col, {}, {}, {}};
    for (size_t d = 0; d < dims.size(); ++d) {
      view.dims[d] = dims[d];
      view.origin[d] = origin[d];
      view.whole[d] = type.shape[d].size;
    }
    return view;
  }
  template <class T>
  std::vector<T> as() const {
    check(dtype_of<T>() == type.dtype, "a test value read as another dtype");
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

struct Runner {
  OpTable table{{builtin_ops().begin(), builtin_ops().end()}};
  Attrs attrs;
  int threads = 1;
  uint64_t seed = 1;
  int64_t step = 0;
  int32_t micro_batch = 0;
  std::string node = "node";
  Window window;

  // Writes to `out`, whose members may be members of `in`.
  void run(std::string_view name, std::vector<Value*> in, std::vector<Value*> out) {
    const OpDef& op = table.at(name);
    std::vector<View> in_views, out_views;
    std::vector<LogicalType> in_types, out_types;
    for (auto* value : in) in_views.push_back(value->view()), in_types.push_back(value->type);
    for (auto* value : out) out_views.push_back(value->view()), out_types.push_back(value->type);
    Attrs complete = complete_attrs(op, attrs);
    infer_types(op, in_types, complete);
    std::vector<double> workspace(op.workspace_bytes ? size_t(op.workspace_bytes(in_types, out_types, complete) / 8 + 8)
                                                     : 0);
    run_cpu(op, {.in = in_views,
                 .out = out_views,
                 .in_types = in_types,
                 .out_types = out_types,
                 .attrs = &complete,
                 .workspace = workspace.data(),
                 .seed = seed,
                 .op_key = name_hash(node),
                 .step = step,
                 .micro_batch = micro_batch,
                 .window = &window,
                 .threads = threads});
  }

  // Runs on whole values with outputs of their own.
  std::vector<Value> operator()(std::string_view name, std::vector<Value> in) {
    const OpDef& op = table.at(name);
    std::vector<LogicalType> types;
    for (auto& value : in) types.push_back(value.type);
    std::vector<Value> out;
    for (auto& type : infer_types(op, types, complete_attrs(op, attrs))) out.push_back(Value::empty(type));
    std::vector<Value*> in_at, out_at;
    for (auto& value : in) in_at.push_back(&value);
    for (auto& value : out) out_at.push_back(&value);
    run(name, in_at, out_at);
    return out;
  }
};

}  // namespace sluice
