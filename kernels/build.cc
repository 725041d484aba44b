// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/rule.h"

namespace sluice {
namespace {

bool is_one(const Dim& dim) { return dim.size == 1 && dim.sym == fixed_sym; }

std::vector<LogicalType> types_of(const Builder& build, const std::vector<TensorId>& ids) {
  std::vector<LogicalType> types;
  for (TensorId id : ids) types.push_back(build.type(id));
  return types;
}

// Brings the inputs of promote_mask to their common dtype.
void promote_inputs(Builder& build, const OpDef& op, std::vector<TensorId>& in) {
  std::optional<DType> common;
  for (size_t i = 0; i < in.size() && i < 32; ++i) {
    if (!(op.rule.promote_mask >> i & 1)) continue;
    DType mine = build.type(in[i]).dtype;
    auto both = promote(common.value_or(mine), mine);
    if (!both) {
      auto types = types_of(build, in);
      refuse({&op, types, nullptr}, Code::type,
             fmt::format("{} and {} have no common dtype", name_of(*common), name_of(mine)), "convert one with astype");
    }
    common = both;
  }
  for (size_t i = 0; i < in.size() && i < 32; ++i)
    if ((op.rule.promote_mask >> i & 1) && build.type(in[i]).dtype != *common)
      in[i] = build.op("astype", {in[i]}, {{"dtype", *common}});
}

// A shape attribute with a dim of -1 becomes the result's shape: graphs hold no open dims.
void close_shapes(const OpDef& op, Attrs& attrs, const std::vector<LogicalType>& out) {
  for (size_t i = 0; i < attrs.size(); ++i) {
    if (op.attrs[i].kind != AttrDef::shape) continue;
    auto& shape = std::get<Shape>(attrs[i].value);
    if (std::any_of(shape.begin(), shape.end(), [](auto& dim) { return dim.size < 0; })) shape = out.at(0).shape;
  }
}

}  // namespace

std::string Builder::unique(std::string_view base) {
  // Other builders may have appended to the graph, and passes may have removed nodes: look at what is new.
  if (seen_ > graph_.nodes.size()) seen_ = 0;
  for (; seen_ < graph_.nodes.size(); ++seen_) {
    const std::string& name = graph_.nodes[seen_].name;
    size_t cut = name.rfind('_');
    if (cut == name.npos || cut + 1 == name.size() || name.size() - cut > 10) continue;
    if (name.find_first_not_of("0123456789", cut + 1) != name.npos) continue;
    auto& next = next_number_[name.substr(0, cut)];
    next = std::max(next, int64_t(std::stoll(name.substr(cut + 1))) + 1);
  }
  std::string full = scope.empty() ? std::string(base) : fmt::format("{}.{}", scope, base);
  std::string name;
  auto taken = [&] {  // by a variable or an input, which have names of their own
    for (auto& variable : graph_.variables)
      if (variable.name == name) return true;
    for (auto& input : graph_.inputs)
      if (input.name == name) return true;
    return false;
  };
  do name = fmt::format("{}_{}", full, next_number_[full]++);
  while (taken());
  return name;
}

std::vector<TensorId> Builder::ops(std::string_view name, std::vector<TensorId> in, Attrs attrs) {
  try {
    const OpDef& op = ops_.at(name);
    for (TensorId id : in)
      if (id < 0 || size_t(id) >= graph_.tensors.size())
        throw Error(Code::value, fmt::format("{}: an input is no tensor of this graph", name));
    attrs = complete_attrs(op, attrs);
    promote_inputs(*this, op, in);
    auto in_types = types_of(*this, in);
    auto out_types = infer_types(op, in_types, attrs);
    close_shapes(op, attrs, out_types);
    Node node{std::string(name), unique(name), std::move(in), {}, std::move(attrs), place, phase, origin, of};
    for (size_t i = 0; i < out_types.size(); ++i) {
      node.outputs.push_back(TensorId(graph_.tensors.size()));
      std::string tensor = i == 0 ? node.name : fmt::format("{}:{}", node.name, i);
      graph_.tensors.push_back({std::move(tensor), std::move(out_types[i]), NodeId(graph_.nodes.size()), int(i)});
    }
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().outputs;
  } catch (const Error& error) {
    throw error.at(place);
  }
}

TensorId Builder::op(std::string_view name, std::vector<TensorId> in, Attrs attrs) {
  auto out = ops(name, std::move(in), std::move(attrs));
  check(!out.empty(), "an op without outputs");
  return out[0];
}

void Builder::claim(const std::string& name) const {
  auto refuse = [&](std::string_view kind) {
    throw Error(Code::value, fmt::format("'{}' is the name of {} already", name, kind), place, "choose another name");
  };
  if (name.empty()) throw Error(Code::value, "a variable or an input needs a name", place);
  for (auto& variable : graph_.variables)
    if (variable.name == name) refuse("a variable");
  for (auto& input : graph_.inputs)
    if (input.name == name) refuse("an input");
  for (auto& node : graph_.nodes)
    if (node.name == name) refuse("a node");
}

TensorId Builder::input(std::string name, LogicalType type, int source, int field) {
  claim(name);
  numel(type.shape);
  for (auto& dim : type.shape) {
    if (dim.sym != batch_sym) continue;
    int64_t bound = dim.size / dim.granule;
    if (graph_.batch_bound == 0) graph_.batch_bound = bound;
    if (graph_.batch_bound != bound)
      throw Error(Code::value,
                  fmt::format("input '{}' has the batch bound {}, the graph has {}", name, bound, graph_.batch_bound),
                  place);
  }
  TensorId id = TensorId(graph_.tensors.size());
  graph_.tensors.push_back({name, std::move(type)});
  graph_.inputs.push_back({std::move(name), id, source, field});
  return id;
}

TensorId Builder::variable(std::string name, LogicalType type, bool trainable, std::string of_variable) {
  claim(name);
  numel(type.shape);
  for (auto& dim : type.shape)
    if (dim.sym != fixed_sym)
      throw Error(Code::value, fmt::format("variable '{}' has a bounded dim: {}", name, text_of(type)), place);
  TensorId id = TensorId(graph_.tensors.size());
  graph_.tensors.push_back({name, std::move(type)});
  graph_.variables.push_back({std::move(name), id, no_tensor, trainable, std::move(of_variable)});
  return id;
}

TensorId Builder::constant(double value, DType dtype) {
  return op("constant", {}, {{"value", value}, {"dtype", dtype}});
}

TensorId Builder::unbroadcast(TensorId grad, TensorId like) {
  const Shape have = type(grad).shape, want = type(like).shape;
  check(have.size() >= want.size(), "a gradient has fewer dims than its tensor");
  size_t extra = have.size() - want.size();
  std::vector<int64_t> leading, ones;
  for (size_t d = 0; d < extra; ++d) leading.push_back(int64_t(d));
  for (size_t d = 0; d < want.size(); ++d)
    if (is_one(want[d]) && !is_one(have[d + extra])) ones.push_back(int64_t(d));
  if (!leading.empty()) grad = op("sum", {grad}, {{"axis", leading}});
  if (!ones.empty()) grad = op("sum", {grad}, {{"axis", ones}, {"keepdims", true}});
  return grad;
}

}  // namespace sluice
