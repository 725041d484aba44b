// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"

#include <fmt/format.h>

#include <unordered_set>

#include "base/text.h"

namespace sluice {
namespace {

std::string attrs_text(const Attrs& attrs) {
  std::string text;
  for (auto& attr : attrs)
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", word_of(attr.name), text_of(attr.value));
  return attrs.empty() ? std::string() : " {" + text + "}";
}

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) {}

  std::string run() {
    if (graph_.batch_bound > 0) text_ += fmt::format("batch {}\n", graph_.batch_bound);
    for (auto& source : graph_.sources)
      text_ += fmt::format("source {}{}{}\n", word_of(source.reader), attrs_text(source.attrs),
                           source.shuffle ? "" : " in order");
    for (auto& input : graph_.inputs) {
      std::string from = input.source < 0 ? "the client" : fmt::format("source {} field {}", input.source, input.field);
      text_ += fmt::format("input {} from {}\n", typed(input.tensor), from);
    }
    for (auto& variable : graph_.variables) {
      text_ += fmt::format("variable {}{}", typed(variable.value), variable.trainable ? "" : " frozen");
      if (!variable.of.empty()) text_ += " of " + word_of(variable.of);
      if (variable.next != no_tensor) text_ += " next " + name(variable.next);
      text_ += "\n";
    }
    for (auto& node : graph_.nodes) this->node(node);
    for (auto& output : graph_.outputs)
      text_ += fmt::format("output {} = {}\n", word_of(output.name), name(output.tensor));
    return std::move(text_);
  }

 private:
  // Broken graphs are printed too: messages need it.
  bool exists(TensorId id) const { return id >= 0 && size_t(id) < graph_.tensors.size(); }
  std::string name(TensorId id) const { return exists(id) ? word_of(graph_.tensor(id).name) : fmt::format("?{}", id); }
  std::string typed(TensorId id) const {
    return exists(id) ? name(id) + " " + text_of(graph_.type(id)) : fmt::format("?{}", id);
  }

  void node(const Node& node) {
    std::string in, out;
    for (auto id : node.inputs) in += (in.empty() ? "" : ", ") + name(id);
    for (auto id : node.outputs) out += (out.empty() ? "" : ", ") + typed(id);
    text_ += fmt::format("{} = {}({}){}", out, word_of(node.op), in, attrs_text(node.attrs));
    if (node.phase == Phase::backward) text_ += " backward";
    if (node.phase == Phase::optimizer) text_ += " optimizer";
    if (node.origin >= 0 && size_t(node.origin) < graph_.nodes.size())
      text_ += " of " + word_of(graph_.nodes[size_t(node.origin)].name);
    if (!node.of.empty()) text_ += " of " + word_of(node.of);
    text_ += "\n";
  }

  const Graph& graph_;
  std::string text_;
};

[[noreturn]] void broken(std::string why) { throw Error(Code::value, std::move(why)); }

class Checker {
 public:
  explicit Checker(const Graph& graph) : graph_(graph), made_(graph.tensors.size()) {}

  void run() {
    if (graph_.tensors.size() > max_items || graph_.nodes.size() > max_items) broken("the graph is too large");
    if (graph_.batch_bound < 0) broken("the batch's bound is negative");
    for (auto& tensor : graph_.tensors) this->tensor(tensor);
    for (auto& input : graph_.inputs) this->input(input);
    for (auto& variable : graph_.variables) this->variable(variable);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) node(NodeId(n));
    for (size_t t = 0; t < graph_.tensors.size(); ++t)
      if (!made_[t]) broken(fmt::format("nothing produces the tensor {}", word_of(graph_.tensors[t].name)));
    for (auto& variable : graph_.variables) next(variable);
    for (auto& output : graph_.outputs) this->output(output);
  }

 private:
  static constexpr size_t max_items = size_t(1) << 30;

  const Tensor& at(TensorId id, std::string_view user) const {
    if (id < 0 || size_t(id) >= graph_.tensors.size())
      broken(fmt::format("{} names tensor {}, which does not exist", user, id));
    return graph_.tensor(id);
  }

  // Names of one kind are unique and not empty.
  static void unique(std::unordered_set<std::string_view>& seen, std::string_view name, std::string_view kind) {
    if (name.empty() || !seen.insert(name).second)
      broken(fmt::format("the name {} of {} is empty or not unique", word_of(name), kind));
  }

  void tensor(const Tensor& tensor) {
    unique(tensors_, tensor.name, "a tensor");
    try {
      check_type(tensor.type);
    } catch (const Error& error) {
      broken(fmt::format("the tensor {}: {}", word_of(tensor.name), error.message()));
    }
  }

  // A tensor that comes from outside of all nodes, and from one place only.
  void from_outside(TensorId id, const std::string& user) {
    auto& tensor = at(id, user);
    if (tensor.producer != -1 || tensor.output != 0 || made_[size_t(id)])
      broken(fmt::format("{} is not the only producer of its tensor {}", user, word_of(tensor.name)));
    made_[size_t(id)] = true;
  }

  void input(const Input& input) {
    unique(inputs_, input.name, "an input");
    from_outside(input.tensor, "the input " + word_of(input.name));
    if (input.source < -1 || input.source >= int(graph_.sources.size()) || input.field < 0)
      broken(fmt::format("the input {} names source {}, field {}, which do not exist", word_of(input.name),
                         input.source, input.field));
  }

  void variable(const Variable& variable) {
    unique(variables_, variable.name, "a variable");
    from_outside(variable.value, "the variable " + word_of(variable.name));
  }

  void next(const Variable& variable) {
    auto user = "the variable " + word_of(variable.name);
    if (!variable.of.empty() && !variables_.contains(variable.of))
      broken(fmt::format("{} belongs to {}, which does not exist", user, word_of(variable.of)));
    if (variable.next == no_tensor) return;
    if (!(at(variable.next, user).type == graph_.type(variable.value)))
      broken(fmt::format("{} changes its type from {} to {}", user, text_of(graph_.type(variable.value)),
                         text_of(graph_.type(variable.next))));
  }

  void node(NodeId id) {
    auto& node = graph_.nodes[size_t(id)];
    auto user = "the node " + word_of(node.name);
    unique(nodes_, node.name, "a node");
    for (auto in : node.inputs) {
      at(in, user);
      if (!made_[size_t(in)])
        broken(fmt::format("{} reads {} before it is made: the order is wrong", user, word_of(graph_.tensor(in).name)));
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      auto& out = at(node.outputs[o], user);
      if (out.producer != id || out.output != int(o) || made_[size_t(node.outputs[o])])
        broken(fmt::format("{} makes {}, which names another producer", user, word_of(out.name)));
      made_[size_t(node.outputs[o])] = true;
    }
    if (node.phase > Phase::optimizer) broken(user + " has no phase that exists");
    if (node.origin < -1 || node.origin >= NodeId(graph_.nodes.size()))
      broken(fmt::format("{} comes from node {}, which does not exist", user, node.origin));
    std::unordered_set<std::string_view> attrs;
    for (auto& attr : node.attrs) unique(attrs, attr.name, "an attribute of " + user);
  }

  void output(const Output& output) {
    unique(outputs_, output.name, "an output");
    at(output.tensor, "the output " + word_of(output.name));
  }

  const Graph& graph_;
  std::vector<bool> made_;
  std::unordered_set<std::string_view> tensors_, inputs_, variables_, nodes_, outputs_;
};

}  // namespace

void check_type(const LogicalType& type) {
  if (type.shape.size() > rank_max)
    broken(fmt::format("a shape has at most {} dims, not {}", rank_max, type.shape.size()));
  if (size_t(type.dtype) >= dtype_names.size()) broken("an element type does not exist");
  for (auto& dim : type.shape) {
    bool granule = dim.granule >= 1 && dim.size % dim.granule == 0 && (dim.sym != fixed_sym || dim.granule == 1);
    if (dim.size < 0 || dim.sym < 0 || dim.sym >= syms_max || !granule)
      broken(fmt::format("a dim has size {}, symbol {} and granule {}", dim.size, dim.sym, dim.granule));
  }
  constexpr int64_t bytes_max = int64_t(1) << 56;  // sums of a few thousand tensors stay far from overflow
  if (numel(type.shape) > bytes_max / bytes_of(type.dtype)) broken(text_of(type) + " is too large");
}

std::string text_of(const Graph& graph) { return Printer(graph).run(); }
void check_graph(const Graph& graph) { Checker(graph).run(); }

}  // namespace sluice
