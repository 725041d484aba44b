// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation of the logical graph. Placement comes later, so no SBP appears here: the adjoint of a
// broadcast, of a tied variable, of a pipeline edge is just a sum of nodes.
#include <algorithm>
#include <map>
#include <tuple>

#include "kernels/build.h"

namespace sluice {
namespace {

class Tape {
 public:
  Tape(Builder& build, std::span<const TensorId> wrt) : build_(build), forward_nodes_(build.graph().nodes.size()) {
    depends_.resize(build.graph().tensors.size(), false);
    for (TensorId t : wrt) depends_[size_t(t)] = true;
    for (auto& node : build.graph().nodes) {
      bool any = false;
      for (TensorId in : node.inputs) any = any || depends_[size_t(in)];
      for (TensorId out : node.outputs) depends_[size_t(out)] = depends_[size_t(out)] || any;
    }
  }

  bool depends(TensorId t) const { return size_t(t) < depends_.size() && depends_[size_t(t)]; }

  void add(TensorId tensor, TensorId gradient) { parts_[tensor].push_back(gradient); }

  // The sum of all that flows back to a tensor.
  TensorId total(TensorId tensor) {
    auto at = parts_.find(tensor);
    if (at == parts_.end()) return no_tensor;
    auto& parts = at->second;
    while (parts.size() > 1) {
      TensorId sum = build_.op("add", {parts[0], parts[1]});
      parts.erase(parts.begin(), parts.begin() + 2);
      parts.push_back(sum);
    }
    return parts[0];
  }

  // Where the sum of a tensor's gradients runs: with its producer, or with its first user when it has none.
  NodeId home(TensorId tensor) const {
    NodeId producer = build_.graph().tensor(tensor).producer;
    if (producer >= 0) return forward_of(producer);
    for (size_t n = 0; n < forward_nodes_; ++n)
      for (TensorId in : build_.graph().nodes[n].inputs)
        if (in == tensor) return forward_of(NodeId(n));
    return -1;
  }

  void visit(NodeId id) {
    Node node = build_.graph().nodes[size_t(id)];  // a copy: the vector grows below
    auto* op = build_.table().find(node.op);
    check(op != nullptr, "a graph node names an op that the table lacks");
    if (!std::any_of(node.inputs.begin(), node.inputs.end(), [&](TensorId t) { return depends(t); })) return;
    build_.place = node.place;
    std::vector<TensorId> gradients(node.outputs.size(), no_tensor), result(node.inputs.size(), no_tensor);
    bool any = false;
    for (size_t o = 0; o < gradients.size(); ++o) {
      build_.origin = forward_of(id);
      gradients[o] = total(node.outputs[o]);
      any = any || gradients[o] != no_tensor;
    }
    if (!any || !op->grad) return;
    build_.origin = forward_of(id);
    GradArgs args{build_, node, gradients, result};
    op->grad(args);
    for (size_t i = 0; i < result.size(); ++i)
      if (result[i] != no_tensor && depends(node.inputs[i])) add(node.inputs[i], result[i]);
  }

  NodeId forward_of(NodeId id) const {
    auto& node = build_.graph().nodes[size_t(id)];
    return node.origin >= 0 ? node.origin : id;
  }

 private:
  Builder& build_;
  size_t forward_nodes_;
  std::vector<bool> depends_;
  std::map<TensorId, std::vector<TensorId>> parts_;
};

}  // namespace

std::vector<TensorId> append_gradients(Builder& build, TensorId loss, std::span<const TensorId> wrt,
                                       TensorId seed_grad) {
  auto& type = build.type(loss);
  if (seed_grad == no_tensor && (!type.shape.empty() || !is_float(type.dtype)))
    throw Error(Code::value, "a gradient needs a scalar loss of a real dtype; this one is " + text_of(type),
                build.place, "reduce it with sum or mean");
  auto saved = std::tuple(build.place, build.phase, build.origin);
  Tape tape(build, wrt);
  NodeId last = build.graph().tensor(loss).producer;
  build.phase = Phase::backward;
  build.origin = last >= 0 ? tape.forward_of(last) : -1;
  if (tape.depends(loss)) {
    tape.add(loss, seed_grad != no_tensor ? seed_grad : build.constant(1.0, type.dtype));
    for (NodeId id = last; id >= 0; --id) tape.visit(id);
  }
  std::vector<TensorId> result;
  for (TensorId t : wrt) {
    build.origin = tape.home(t);
    result.push_back(tape.total(t));
  }
  std::tie(build.place, build.phase, build.origin) = saved;
  return result;
}

}  // namespace sluice
