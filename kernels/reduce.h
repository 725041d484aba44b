// SPDX-License-Identifier: Apache-2.0
// What reductions share: the attributes `axis` and `keepdims`, their rule, and the loops of their kernels.
// The dims of a call are merged into runs that are kept (K) or reduced (R); [R,K] sums rows, [K,R] sums along rows, and
// anything deeper loops over these two. Sums are taken in blocks, so their error grows slowly with the count.
// Invariant: an empty local tensor gives the reduction's identity (0, -inf, inf), so that parts can be combined.
// Thread rule: pure but for the buffers.
#pragma once
#include "kernels/build.h"
#include "kernels/rule.h"

namespace sluice {

inline constexpr AttrDef reduce_attrs[] = {
    {AttrDef::integers, "axis", "The dims to reduce; empty: all.", "[]"},
    {AttrDef::boolean, "keepdims", "Whether reduced dims stay with size 1.", "false"}};

// Which dims of the first input `axis` names. Refuses doubles and axes outside.
std::vector<bool> reduced_dims(const RuleArgs& args);
// The output's shape, with the dtype of the input.
std::vector<LogicalType> types_reduce(const RuleArgs& args);
// Kept dims split; reduced dims split to `partial`; a `partial` passes.
std::vector<Signature> signatures_reduce(const RuleArgs& args, Sbp partial);

// The elements that are reduced into one, over the whole batch: `axis` of `type` at the extents of the window.
double reduced_count(const Call& call);

// For gradients: a tensor of the reduced shape, stretched to the shape of the node's input.
TensorId unreduced(Builder& build, const Node& node, TensorId reduced);
// The shape of the node's input with size 1 in the reduced dims.
Shape kept_shape(const Builder& build, const Node& node);
// The reduced dims only.
Shape lost_shape(const Builder& build, const Node& node);

// The merged dims of a reduction, outermost first.
struct ReduceLoops {
  struct Loop {
    int64_t size = 1;
    bool reduced = false;
    int64_t in_stride = 1, out_stride = 1;
  };
  std::vector<Loop> loops;
};
ReduceLoops reduce_loops(const View& in, const std::vector<int64_t>& axis);

}  // namespace sluice
