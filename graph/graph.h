// SPDX-License-Identifier: Apache-2.0
// The logical graph: ops on logical tensors, without any placement. It is data: it is what a client submits.
// A model is a function (variables, inputs) -> (next variables, outputs); nothing is mutated.
// Invariants: nodes are in topological order; a tensor has exactly one producer (a node, a variable or an input);
// names of variables, inputs and outputs are unique.
// Thread rule: values.
#pragma once
#include <string>
#include <vector>

#include "base/attr.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"

namespace sluice {

using TensorId = int32_t;
using NodeId = int32_t;
inline constexpr TensorId no_tensor = -1;

struct LogicalType {
  DType dtype = DType::float32;
  Shape shape;
  bool operator==(const LogicalType&) const = default;
};
inline std::string text_of(const LogicalType& type) { return std::string(name_of(type.dtype)) + text_of(type.shape); }

struct Tensor {
  std::string name;  // "fc1.weight", "matmul_3"; unique by the builder
  LogicalType type;
  NodeId producer = -1;  // -1: a variable's value or an input
  int output = 0;        // which output of the producer
  bool operator==(const Tensor&) const = default;
};

// What part of a training step a node belongs to. Set by the builder (forward) and by the passes.
enum class Phase : uint8_t { forward, backward, optimizer };

struct Node {
  std::string op;
  std::string name;
  std::vector<TensorId> inputs, outputs;
  Attrs attrs;
  Place place;  // the user's line that made it
  Phase phase = Phase::forward;
  NodeId origin = -1;  // backward: the forward node whose gradient this is; it runs on that node's stage
  std::string of;      // optimizer: the variable it serves; it runs where that variable lives
  bool operator==(const Node&) const = default;
};

// A value that outlives a step: a parameter, a buffer, an optimizer state. `next` is its value after the step;
// no_tensor: it never changes.
struct Variable {
  std::string name;
  TensorId value = no_tensor;
  TensorId next = no_tensor;
  bool trainable = true;
  std::string of;  // an optimizer state: the parameter it belongs to; else ""
  bool operator==(const Variable&) const = default;
};

// A tensor that each step gets from outside: fed by the client (source < 0), or field `field` of a data source.
struct Input {
  std::string name;
  TensorId tensor = no_tensor;
  int source = -1, field = 0;
  bool operator==(const Input&) const = default;
};

// A data source: a reader (data/) and its arguments. All its fields share the batch dim.
struct Source {
  std::string reader;
  Attrs attrs;
  bool shuffle = true;
  bool operator==(const Source&) const = default;
};

struct Output {
  std::string name;
  TensorId tensor = no_tensor;
  bool operator==(const Output&) const = default;
};

struct Graph {
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;
  std::vector<Variable> variables;
  std::vector<Input> inputs;
  std::vector<Source> sources;
  std::vector<Output> outputs;
  int64_t batch_bound = 0;  // the bound of batch_sym; 0: no batch

  const Tensor& tensor(TensorId id) const { return tensors[size_t(id)]; }
  const LogicalType& type(TensorId id) const { return tensors[size_t(id)].type; }
  bool operator==(const Graph&) const = default;
};

// What to train: a graph with its loss, the optimizer as an op's name with attributes, and the seed.
struct Job {
  std::string name;
  Graph graph;
  TensorId loss = no_tensor;  // no_tensor: evaluate or predict only
  std::string optimizer;      // the name of an op with `states`; "" : no update
  Attrs optimizer_attrs;
  uint64_t seed = 0;
  bool training = true;
  bool operator==(const Job&) const = default;
};

std::string text_of(const Graph& graph);  // one line a node, for goldens and messages
// The invariants of shape.h, and sizes that cannot overflow: throws Error(value).
void check_type(const LogicalType& type);
// The invariants above, ids in range and phases included: throws Error(value) that names what breaks one.
void check_graph(const Graph& graph);

}  // namespace sluice
