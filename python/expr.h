// SPDX-License-Identifier: Apache-2.0
// Expr: a lazy tensor of the Python front end. It is made node by node with types inferred at once, so that a shape
// error appears at the user's line; it becomes a Graph when a value, a gradient or a job is asked for.
// No nanobind here: bind*.cc wrap this.
//
//   leaf:  constant (a value) | scalar (a number written in the user's code) | input (fed or read from data)
//          | variable (a parameter; its `cell` says where the value lives)
//   op:    an op's name, its attributes and its inputs
//
// An evaluated node keeps its value and, outside of differentiation, drops its inputs: a loop that evaluates each
// round holds no history.
// Thread rule: handles are shared; one thread at a time builds or evaluates (the Python lock).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "actors/floor.h"
#include "kernels/build.h"

namespace sluice {

struct ExprNode;
using HostArrayPtr = std::shared_ptr<const HostArray>;

class Expr {
 public:
  Expr() = default;
  Expr(std::shared_ptr<ExprNode> node, int output) : node_(std::move(node)), output_(output) {}

  static Expr constant(HostArrayPtr value);
  static Expr scalar(double value, DType dtype);
  static Expr input(std::string name, LogicalType type);
  static Expr variable(LogicalType type, std::shared_ptr<void> cell);
  // Appends an op. Throws Error at `place`. `name`: "" lets the graph name it.
  static std::vector<Expr> apply(const OpTable& table, std::string_view op, const std::vector<Expr>& in, Attrs attrs,
                                 const Place& place, std::string name = {});

  explicit operator bool() const { return node_ != nullptr; }
  ExprNode& node() const { return *node_; }
  int output() const { return output_; }
  const LogicalType& type() const;
  HostArrayPtr value() const;  // null: not evaluated
  void set_value(HostArrayPtr value) const;
  void drop_inputs() const;  // of an evaluated node
  Expr sibling(int output) const { return {node_, output}; }
  bool only_owner() const { return node_ && node_.use_count() == 1; }

 private:
  std::shared_ptr<ExprNode> node_;
  int output_ = 0;
};

struct ExprNode {
  enum Kind : uint8_t { op, constant, scalar, input, variable } kind = op;
  std::string op_name, name;
  Attrs attrs;
  Place place;
  std::vector<Expr> in;
  std::vector<LogicalType> types;  // of each output
  std::vector<HostArrayPtr> values;
  double number = 0;
  std::shared_ptr<void> cell;  // variable: whoever owns the value

  ExprNode() = default;
  ExprNode(const ExprNode&) = delete;
  ExprNode& operator=(const ExprNode&) = delete;
  ~ExprNode();  // frees long chains without recursion
};

LogicalType type_of(const HostArray& array);

struct NamedExpr {
  std::string name;
  Expr expr;
  bool trainable = true;       // of a variable
  int source = -1, field = 0;  // of an input
};

// What becomes a graph.
struct GraphRequest {
  std::vector<NamedExpr> outputs, inputs, variables;
  int64_t batch_bound = 0;
  bool constants_fed = true;  // true: values become inputs "c0", "c1", ...; false: variables that never change
};

struct GraphResult {
  Graph graph;
  std::vector<std::pair<std::string, HostArrayPtr>> constants;  // by the name of their input or variable
};

// Linearises what the outputs need. Throws Error where an input or variable is used that the request does not name.
GraphResult to_graph(const OpTable& table, const GraphRequest& request);

// The gradients of a scalar with respect to `wrt`, as new expressions; empty ones where there is none.
std::vector<Expr> gradients(const OpTable& table, const Expr& loss, const std::vector<Expr>& wrt);

// The variables that the values of `outputs` need, each once, in a fixed order.
std::vector<Expr> variables_of(const std::vector<Expr>& outputs);

// The outputs of all nodes with names that `outputs` need, named as in a graph.
std::vector<std::pair<std::string, Expr>> named_exprs(const std::vector<Expr>& outputs);

// Whether a value can be had: false where an input without a value is needed.
bool is_concrete(const Expr& expr);

}  // namespace sluice
