// SPDX-License-Identifier: Apache-2.0
#include "python/expr.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace sluice {
namespace {

std::shared_ptr<ExprNode> leaf(ExprNode::Kind kind, LogicalType type) {
  auto node = std::make_shared<ExprNode>();
  node->kind = kind;
  node->types.push_back(std::move(type));
  node->values.resize(1);
  return node;
}

// The batch of any operand: ops that make new batch dims from old ones need no more than the operands' own dims.
int64_t batch_bound_of(const std::vector<Expr>& in) {
  for (auto& expr : in)
    for (auto& dim : expr.type().shape)
      if (dim.sym == batch_sym) return dim.size / dim.granule;
  return 0;
}

// Nodes `first`.. of a graph as expressions over the tensors in `known`, which gets the new ones.
void append_exprs(const Graph& graph, size_t first, std::map<TensorId, Expr>& known) {
  for (size_t n = first; n < graph.nodes.size(); ++n) {
    auto& from = graph.nodes[n];
    auto node = std::make_shared<ExprNode>();
    node->op_name = from.op;
    node->attrs = from.attrs;
    node->place = from.place;
    for (TensorId in : from.inputs) node->in.push_back(known.at(in));
    for (TensorId out : from.outputs) node->types.push_back(graph.type(out));
    node->values.resize(from.outputs.size());
    for (size_t o = 0; o < from.outputs.size(); ++o) known[from.outputs[o]] = Expr(node, int(o));
  }
}

// Nodes that `outputs` reach, producers first; `stop` says where not to look further.
template <class Stop>
std::vector<Expr> in_order(const std::vector<Expr>& outputs, Stop&& stop) {
  struct Visit {
    Expr expr;
    size_t next = 0;
  };
  std::vector<Expr> order;
  std::unordered_set<const ExprNode*> seen;
  std::vector<Visit> stack;
  auto push = [&](const Expr& expr) {
    if (seen.insert(&expr.node()).second) stack.push_back({expr});
  };
  for (auto& output : outputs) {
    push(output);
    while (!stack.empty()) {
      auto& top = stack.back();
      auto& in = top.expr.node().in;
      if (!stop(top.expr) && top.next < in.size()) {
        Expr next = in[top.next++];
        push(next);
      } else {
        order.push_back(top.expr);
        stack.pop_back();
      }
    }
  }
  return order;
}

bool has_values(const Expr& expr) {
  for (auto& value : expr.node().values)
    if (value) return true;
  return false;
}

// An evaluated node is a leaf. One of several outputs may be evaluated alone: then the node counts as evaluated where
// that output is used, and `value_or_op` below takes care of the others.
bool is_evaluated(const Expr& expr) {
  auto& node = expr.node();
  for (auto& value : node.values)
    if (!value) return false;
  return true;
}

class Linearizer {
 public:
  Linearizer(const OpTable& table, const GraphRequest& request, GraphResult& result)
      : request_(request), result_(result), build_(result.graph, table) {}

  void run() {
    result_.graph.batch_bound = request_.batch_bound;
    for (auto& variable : request_.variables)
      ids_[&variable.expr.node()] = {build_.variable(variable.name, variable.expr.type(), variable.trainable)};
    for (auto& input : request_.inputs)
      ids_[&input.expr.node()] = {build_.input(input.name, input.expr.type(), input.source, input.field)};
    std::vector<Expr> outputs;
    for (auto& output : request_.outputs) outputs.push_back(output.expr);
    auto order = in_order(outputs, [](const Expr& e) { return is_evaluated(e); });
    for (auto& expr : order)
      if (!ids_.contains(&expr.node())) append(expr);
    for (auto& output : request_.outputs) result_.graph.outputs.push_back({output.name, id_of(output.expr)});
  }

  TensorId id_of(const Expr& expr) const { return ids_.at(&expr.node())[size_t(expr.output())]; }

 private:
  void append(const Expr& expr) {
    auto& node = expr.node();
    auto& ids = ids_[&node];
    if (is_evaluated(expr)) {
      for (auto& value : node.values) ids.push_back(constant(value));
      return;
    }
    switch (node.kind) {
      case ExprNode::scalar: ids.push_back(scalar(node)); return;
      case ExprNode::op: ids = append_op(node); return;
      case ExprNode::constant: break;
      case ExprNode::input:
      case ExprNode::variable:
        throw Error(Code::value,
                    fmt::format("the {} '{}' has no value here", node.kind == ExprNode::input ? "input" : "parameter",
                                node.name.empty() ? text_of(node.types[0]) : node.name),
                    node.place, "inside a job's model only shapes are known; use fetch= or fit(debug_steps=1)");
    }
    check(false, "a constant without a value");
  }

  // A fed graph keeps its text, and so its plan, when only a number changes.
  TensorId scalar(const ExprNode& node) {
    if (!request_.constants_fed) return build_.constant(node.number, node.types[0].dtype);
    auto value = std::make_shared<HostArray>();
    value->dtype = node.types[0].dtype;
    value->data.resize(size_t(bytes_of(value->dtype)));
    bool known = visit_dtype(value->dtype, [&]<class T>(Tag<T>) {
      T number = T(node.number);
      std::memcpy(value->data.data(), &number, sizeof(T));
    });
    if (!known) throw Error(Code::type, fmt::format("a number as {}", name_of(value->dtype)), node.place);
    return constant(value);
  }

  TensorId constant(const HostArrayPtr& value) {
    std::string name = fmt::format("{}{}", request_.constants_fed ? "c" : "constant_", result_.constants.size());
    result_.constants.emplace_back(name, value);
    if (request_.constants_fed) return build_.input(name, type_of(*value));
    return build_.variable(name, type_of(*value), false);
  }

  std::vector<TensorId> append_op(const ExprNode& node) {
    std::vector<TensorId> in;
    for (auto& expr : node.in) in.push_back(id_of(expr));
    build_.place = node.place;
    auto ids = build_.ops(node.op_name, std::move(in), node.attrs);
    auto& made = build_.graph().nodes[size_t(build_.graph().tensor(ids.front()).producer)].name;
    // A model that is called twice outside of a job gives a name twice: the second node keeps the builder's.
    if (!node.name.empty() && names_.insert(node.name).second) rename(ids, node.name);
    names_.insert(made);
    return ids;
  }

  // Names that the model's tracing gave: the same in every graph that holds the node.
  void rename(const std::vector<TensorId>& ids, const std::string& name) {
    auto& graph = build_.graph();
    auto& node = graph.nodes[size_t(graph.tensor(ids.front()).producer)];
    std::string old = node.name;
    node.name = name;
    for (TensorId id : ids) {
      auto& tensor = graph.tensors[size_t(id)].name;
      tensor = name + (tensor.starts_with(old) ? tensor.substr(old.size()) : "");
    }
  }

  const GraphRequest& request_;
  GraphResult& result_;
  Builder build_;
  std::unordered_map<const ExprNode*, std::vector<TensorId>> ids_;
  std::unordered_set<std::string> names_;  // of nodes
};

}  // namespace

ExprNode::~ExprNode() {
  std::vector<Expr> dying = std::move(in);
  while (!dying.empty()) {
    Expr last = std::move(dying.back());
    dying.pop_back();
    if (last.only_owner()) {
      auto& inner = last.node().in;
      dying.insert(dying.end(), std::make_move_iterator(inner.begin()), std::make_move_iterator(inner.end()));
      inner.clear();
    }
  }
}

LogicalType type_of(const HostArray& array) { return {array.dtype, fixed_shape(array.dims)}; }

Expr Expr::constant(HostArrayPtr value) {
  auto node = leaf(ExprNode::constant, type_of(*value));
  node->values[0] = std::move(value);
  return {node, 0};
}

Expr Expr::scalar(double value, DType dtype) {
  auto node = leaf(ExprNode::scalar, {dtype, {}});
  node->number = value;
  return {node, 0};
}

Expr Expr::input(std::string name, LogicalType type) {
  auto node = leaf(ExprNode::input, std::move(type));
  node->name = std::move(name);
  return {node, 0};
}

Expr Expr::variable(LogicalType type, std::shared_ptr<void> cell) {
  auto node = leaf(ExprNode::variable, std::move(type));
  node->cell = std::move(cell);
  return {node, 0};
}

std::vector<Expr> Expr::apply(const OpTable& table, std::string_view op, const std::vector<Expr>& in, Attrs attrs,
                              const Place& place, std::string name) {
  Graph graph;
  graph.batch_bound = batch_bound_of(in);
  Builder build(graph, table);
  std::map<TensorId, Expr> known;
  std::vector<TensorId> ids;
  for (size_t i = 0; i < in.size(); ++i) {
    ids.push_back(build.input(std::to_string(i), in[i].type()));
    known[ids.back()] = in[i];
  }
  build.place = place;
  auto outputs = build.ops(op, ids, std::move(attrs));
  append_exprs(graph, 0, known);
  std::vector<Expr> result;
  for (TensorId id : outputs) result.push_back(known.at(id));
  result.front().node().name = std::move(name);
  return result;
}

const LogicalType& Expr::type() const { return node_->types[size_t(output_)]; }
HostArrayPtr Expr::value() const { return node_->values[size_t(output_)]; }
void Expr::set_value(HostArrayPtr value) const { node_->values[size_t(output_)] = std::move(value); }

void Expr::drop_inputs() const {
  if (is_evaluated(*this)) node_->in.clear();
}

GraphResult to_graph(const OpTable& table, const GraphRequest& request) {
  GraphResult result;
  Linearizer(table, request, result).run();
  return result;
}

std::vector<Expr> gradients(const OpTable& table, const Expr& loss, const std::vector<Expr>& wrt) {
  Graph graph;
  Builder build(graph, table);
  std::map<TensorId, Expr> known;
  std::unordered_map<const ExprNode*, std::vector<TensorId>> ids;
  graph.batch_bound = batch_bound_of({loss});
  // The whole structure, evaluated or not: `wrt` may lie above what has a value already.
  auto all = wrt;
  all.insert(all.begin(), loss);
  for (auto& expr : in_order(all, [](const Expr&) { return false; })) {
    auto& node = expr.node();
    std::vector<TensorId> made;
    if (node.kind == ExprNode::op && !(node.in.empty() && has_values(expr))) {
      std::vector<TensorId> in;
      for (auto& input : node.in) in.push_back(ids.at(&input.node())[size_t(input.output())]);
      build.place = node.place;
      made = build.ops(node.op_name, in, node.attrs);
    } else {
      for (auto& type : node.types) made.push_back(build.input(fmt::format("i{}", known.size()), type));
    }
    for (size_t o = 0; o < made.size(); ++o) {
      Expr of(expr);
      known[made[o]] = of.sibling(int(o));
    }
    ids[&node] = made;
  }
  auto id_of = [&](const Expr& expr) { return ids.at(&expr.node())[size_t(expr.output())]; };
  std::vector<TensorId> targets;
  for (auto& expr : wrt) targets.push_back(id_of(expr));
  size_t first = graph.nodes.size();
  build.place = loss.node().place;
  auto found = append_gradients(build, id_of(loss), targets);
  append_exprs(graph, first, known);
  std::vector<Expr> result;
  for (TensorId id : found) result.push_back(id == no_tensor ? Expr{} : known.at(id));
  return result;
}

std::vector<Expr> variables_of(const std::vector<Expr>& outputs) {
  std::vector<Expr> result;
  for (auto& expr :
       in_order(outputs, [](const Expr& e) { return e.node().kind != ExprNode::variable && is_evaluated(e); }))
    if (expr.node().kind == ExprNode::variable) result.push_back(expr.sibling(0));
  return result;
}

std::vector<std::pair<std::string, Expr>> named_exprs(const std::vector<Expr>& outputs) {
  std::vector<std::pair<std::string, Expr>> result;
  for (auto& expr : in_order(outputs, [](const Expr&) { return false; })) {
    auto& node = expr.node();
    if (node.kind != ExprNode::op || node.name.empty()) continue;
    for (size_t o = 0; o < node.types.size(); ++o)
      result.emplace_back(o == 0 ? node.name : fmt::format("{}:{}", node.name, o), expr.sibling(int(o)));
  }
  return result;
}

bool is_concrete(const Expr& expr) {
  for (auto& needed : in_order({expr}, [](const Expr& e) { return is_evaluated(e); }))
    if (needed.node().kind == ExprNode::input && !is_evaluated(needed)) return false;
  return true;
}

}  // namespace sluice
