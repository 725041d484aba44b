// SPDX-License-Identifier: Apache-2.0
#include "kernels/op.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/device/device.h"
#include "kernels/rule.h"
#include "kernels/tile.h"

namespace sluice {
namespace {

std::string_view name_of(AttrDef::Kind kind) {
  constexpr std::array<std::string_view, 7> names{"a bool",  "an integer", "a real", "a text", "a list of integers",
                                                  "a shape", "a dtype"};
  return names[kind];
}

// The value as the declared kind; an integer serves as a real and a list of integers as a shape.
AttrValue as_kind(const OpDef& op, const AttrDef& def, const AttrValue& value) {
  if (value.index() == size_t(def.kind)) return value;
  if (auto* integer = std::get_if<int64_t>(&value); integer && def.kind == AttrDef::real) return double(*integer);
  if (auto* sizes = std::get_if<std::vector<int64_t>>(&value); sizes && def.kind == AttrDef::shape)
    return fixed_shape(*sizes);
  throw Error(Code::type,
              fmt::format("{}: attribute '{}' is {}, not {}", op.name, def.name, text_of(value), name_of(def.kind)));
}

void check_names(const OpDef& op, const Attrs& attrs) {
  std::vector<std::string_view> names;
  for (auto& def : op.attrs) names.push_back(def.name);
  for (size_t i = 0; i < attrs.size(); ++i) {
    const std::string& name = attrs[i].name;
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      std::string near = nearest(name, names);
      throw Error(Code::type, fmt::format("{} has no attribute '{}'", op.name, name), {},
                  near.empty() ? "" : fmt::format("did you mean '{}'?", near));
    }
    for (size_t j = 0; j < i; ++j)
      if (attrs[j].name == name)
        throw Error(Code::type, fmt::format("{}: attribute '{}' is given twice", op.name, name));
  }
}

}  // namespace

OpTable::OpTable(std::vector<const OpDef*> ops) : ops_(std::move(ops)) {
  std::sort(ops_.begin(), ops_.end(), [](auto* a, auto* b) { return a->name < b->name; });
  for (size_t i = 1; i < ops_.size(); ++i)
    if (ops_[i - 1]->name == ops_[i]->name)
      throw Error(Code::value, fmt::format("two ops have the name '{}'", ops_[i]->name), {}, "rename the plug-in's op");
}

const OpDef* OpTable::find(std::string_view name) const {
  auto at = std::lower_bound(ops_.begin(), ops_.end(), name, [](auto* op, auto& key) { return op->name < key; });
  return at != ops_.end() && (*at)->name == name ? *at : nullptr;
}

const OpDef& OpTable::at(std::string_view name) const {
  if (auto* op = find(name)) return *op;
  std::vector<std::string_view> names;
  for (auto* op : ops_) names.push_back(op->name);
  std::string near = nearest(name, names);
  throw Error(Code::not_found, fmt::format("there is no op '{}'", name), {},
              near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

Cost cost_of(const OpDef& op, std::span<const LogicalType> in, std::span<const LogicalType> out, const Attrs& attrs) {
  if (op.cost) return op.cost(in, out, attrs);
  Cost cost;
  if (op.view != ViewKind::none) return cost;
  for (auto& type : out) cost.flops += double(numel(type.shape));
  for (auto list : {in, out})
    for (auto& type : list) cost.bytes += double(numel(type.shape)) * double(bytes_of(type.dtype));
  return cost;
}

Attrs complete_attrs(const OpDef& op, const Attrs& attrs) {
  check_names(op, attrs);
  Attrs complete;
  for (auto& def : op.attrs) {
    const AttrValue* given = find_attr(attrs, def.name);
    if (!given && def.default_text.empty())
      throw Error(Code::type, fmt::format("{}: attribute '{}' is missing ({})", op.name, def.name, def.doc));
    complete.push_back({std::string(def.name), as_kind(op, def, given ? *given : parse_attr(def.default_text))});
  }
  return complete;
}

void run_cpu(const OpDef& op, const Call& call) {
  if (op.cpu) return op.cpu(call);
  if (op.tile) return run_tile(op, op.tile, call);
  throw Error(Code::type, fmt::format("{} has no CPU kernel", op.name));
}

void run_op(const OpDef& op, const Call& call) {
  if (!call.queue) return run_cpu(op, call);
  if (!op.cuda) throw Error(Code::type, fmt::format("{} has no kernel for this device", op.name));
  op.cuda(call);
  check_queue(call.queue, op.name);
}

}  // namespace sluice
