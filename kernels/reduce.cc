// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

// The same for a node whose axes were checked when it was built, and at run time.
std::vector<bool> checked_dims(const std::vector<int64_t>& axis, int rank) {
  std::vector<bool> reduced(size_t(rank), axis.empty());
  for (int64_t a : axis) {
    check(a >= -rank && a < rank, "a reduction's axis is outside of its tensor");
    reduced[size_t(a < 0 ? a + rank : a)] = true;
  }
  return reduced;
}

}  // namespace

std::vector<bool> reduced_dims(const RuleArgs& args) {
  int rank = int(args.in[0].shape.size());
  auto& axis = attr<std::vector<int64_t>>(*args.attrs, "axis");
  std::vector<bool> reduced(size_t(rank), axis.empty());
  for (int64_t a : axis) {
    auto d = size_t(resolve_axis(args, a, rank));
    if (reduced[d]) refuse(args, Code::value, fmt::format("axis {} is named twice", a));
    reduced[d] = true;
  }
  return reduced;
}

std::vector<LogicalType> types_reduce(const RuleArgs& args) {
  auto reduced = reduced_dims(args);
  LogicalType out{args.in[0].dtype, {}};
  for (size_t d = 0; d < reduced.size(); ++d) {
    if (!reduced[d]) out.shape.push_back(args.in[0].shape[d]);
    if (reduced[d] && attr<bool>(*args.attrs, "keepdims")) out.shape.push_back({1});
  }
  return {out};
}

std::vector<Signature> signatures_reduce(const RuleArgs& args, Sbp partial) {
  auto reduced = reduced_dims(args);
  bool keepdims = attr<bool>(*args.attrs, "keepdims");
  std::vector<Signature> list;
  int out = 0;
  for (size_t d = 0; d < reduced.size(); ++d) {
    list.push_back({{Sbp::split(int(d))}, {reduced[d] ? partial : Sbp::split(out)}});
    out += !reduced[d] || keepdims;
  }
  list.push_back({{partial}, {partial}});
  return list;
}

double reduced_count(const Call& call) {
  const Shape& shape = call.in_types[0].shape;
  auto reduced = checked_dims(call.attr<std::vector<int64_t>>("axis"), int(shape.size()));
  double count = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!reduced[d]) continue;
    bool bounded = shape[d].sym != fixed_sym && call.window;
    count *= double(bounded ? shape[d].granule * call.window->whole[size_t(shape[d].sym)] : shape[d].size);
  }
  return count;
}

Shape kept_shape(const Builder& build, const Node& node) {
  Shape shape = build.type(node.inputs[0]).shape;
  auto reduced = checked_dims(attr<std::vector<int64_t>>(node.attrs, "axis"), int(shape.size()));
  for (size_t d = 0; d < shape.size(); ++d)
    if (reduced[d]) shape[d] = {1};
  return shape;
}

Shape lost_shape(const Builder& build, const Node& node) {
  const Shape& shape = build.type(node.inputs[0]).shape;
  auto reduced = checked_dims(attr<std::vector<int64_t>>(node.attrs, "axis"), int(shape.size()));
  Shape lost;
  for (size_t d = 0; d < shape.size(); ++d)
    if (reduced[d]) lost.push_back(shape[d]);
  return lost;
}

TensorId unreduced(Builder& build, const Node& node, TensorId reduced) {
  Shape kept = kept_shape(build, node), whole = build.type(node.inputs[0]).shape;
  if (build.type(reduced).shape != kept) reduced = build.op("reshape", {reduced}, {{"shape", kept}});
  return kept == whole ? reduced : build.op("broadcast_to", {reduced}, {{"shape", whole}});
}

ReduceLoops reduce_loops(const View& in, const std::vector<int64_t>& axis) {
  auto reduced = checked_dims(axis, in.rank);
  ReduceLoops result;
  auto& loops = result.loops;
  for (int d = 0; d < in.rank; ++d) {
    int64_t size = in.dims[size_t(d)];
    if (size == 1) continue;
    if (!loops.empty() && loops.back().reduced == reduced[size_t(d)])
      loops.back().size *= size;
    else
      loops.push_back({size, reduced[size_t(d)]});
  }
  int64_t in_stride = 1, out_stride = 1;
  for (size_t l = loops.size(); l-- > 0;) {
    loops[l].in_stride = in_stride;
    loops[l].out_stride = loops[l].reduced ? 0 : out_stride;
    in_stride *= loops[l].size;
    if (!loops[l].reduced) out_stride *= loops[l].size;
  }
  return result;
}

}  // namespace sluice
