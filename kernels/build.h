// SPDX-License-Identifier: Apache-2.0
// Builder: the one way to append a node to a graph. It checks attributes, infers types (an error carries the user's
// place), and names tensors after their node: "matmul_3".
// Thread rule: one thread a graph.
#pragma once
#include <initializer_list>
#include <string_view>
#include <unordered_map>

#include "kernels/op.h"

namespace sluice {

class Builder {
 public:
  Builder(Graph& graph, const OpTable& ops) : graph_(graph), ops_(ops) {}

  // Where the nodes that follow come from.
  Place place;
  Phase phase = Phase::forward;
  NodeId origin = -1;
  std::string of;
  std::string scope;  // prefix of names: "layers.0"

  // Appends a node; its first output, or all of them.
  TensorId op(std::string_view name, std::vector<TensorId> in, Attrs attrs = {});
  std::vector<TensorId> ops(std::string_view name, std::vector<TensorId> in, Attrs attrs = {});

  TensorId input(std::string name, LogicalType type, int source = -1, int field = 0);
  TensorId variable(std::string name, LogicalType type, bool trainable, std::string of_variable = {});

  const LogicalType& type(TensorId id) const { return graph_.type(id); }
  Graph& graph() { return graph_; }
  const OpTable& table() const { return ops_; }

  // A scalar constant of the dtype of `like`.
  TensorId constant(double value, DType dtype);
  // Sums the dims that broadcasting added, so that the result has the type of `like`: the gradient of broadcasting.
  TensorId unbroadcast(TensorId grad, TensorId like);

 private:
  std::string unique(std::string_view base);
  void claim(const std::string& name) const;              // throws where a variable, an input or a node has this name
  std::unordered_map<std::string, int64_t> next_number_;  // per base name
  size_t seen_ = 0;                                       // nodes whose numbers next_number_ counts
  Graph& graph_;
  const OpTable& ops_;
};

// Appends the gradients of `loss` (a scalar) with respect to `wrt`; no_tensor where loss does not depend on it.
// Backward nodes get phase backward and their forward node as origin. `seed_grad`: d loss, default ones.
std::vector<TensorId> append_gradients(Builder& build, TensorId loss, std::span<const TensorId> wrt,
                                       TensorId seed_grad = no_tensor);

}  // namespace sluice
