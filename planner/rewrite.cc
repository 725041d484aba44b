// SPDX-License-Identifier: Apache-2.0
#include "planner/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

namespace sluice {
namespace {

// Keeps the marked nodes in their order and drops tensors that lost their producer.
void keep_nodes(Job& job, const std::vector<bool>& keep) {
  auto& graph = job.graph;
  std::vector<NodeId> node_to(graph.nodes.size(), -1);
  std::vector<Node> nodes;
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (keep[n]) {
      node_to[n] = NodeId(nodes.size());
      nodes.push_back(std::move(graph.nodes[n]));
    }
  std::vector<TensorId> tensor_to(graph.tensors.size(), no_tensor);
  std::vector<Tensor> tensors;
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    auto& tensor = graph.tensors[t];
    if (tensor.producer >= 0 && !keep[size_t(tensor.producer)]) continue;
    tensor_to[t] = TensorId(tensors.size());
    if (tensor.producer >= 0) tensor.producer = node_to[size_t(tensor.producer)];
    tensors.push_back(std::move(tensor));
  }
  auto map = [&](TensorId& id) {
    if (id != no_tensor) id = tensor_to[size_t(id)];
  };
  for (auto& node : nodes) {
    for (auto& id : node.inputs) map(id);
    for (auto& id : node.outputs) map(id);
    if (node.origin >= 0) node.origin = node_to[size_t(node.origin)];
  }
  for (auto& variable : graph.variables) map(variable.value), map(variable.next);
  for (auto& input : graph.inputs) map(input.tensor);
  for (auto& output : graph.outputs) map(output.tensor);
  map(job.loss);
  graph.nodes = std::move(nodes);
  graph.tensors = std::move(tensors);
}

}  // namespace

void check_nodes(const Graph& graph, const OpTable& ops) {
  for (auto& node : graph.nodes) {
    try {
      auto& op = ops.at(node.op);
      auto complete = complete_attrs(op, node.attrs);
      bool whole = complete.size() == node.attrs.size();
      for (size_t a = 0; whole && a < complete.size(); ++a)
        whole = complete[a].name == node.attrs[a].name && complete[a].value.index() == node.attrs[a].value.index();
      if (!whole) throw Error(Code::value, "its attributes are not complete, or in another order");
      std::vector<LogicalType> in, out;
      for (TensorId t : node.inputs) in.push_back(graph.type(t));
      for (TensorId t : node.outputs) out.push_back(graph.type(t));
      if (infer_types(op, in, node.attrs) != out) throw Error(Code::value, "its outputs are not what the op makes");
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("the node '{}' ({}): {}", node.name, node.op, error.message()),
                  error.place().known() ? error.place() : node.place, error.next());
    }
  }
}

void remove_dead(Job& job, const std::vector<TensorId>& roots) {
  auto& graph = job.graph;
  std::vector<bool> keep(graph.nodes.size(), false);
  std::vector<NodeId> open;
  auto need = [&](TensorId t) {
    NodeId producer = t == no_tensor ? -1 : graph.tensor(t).producer;
    if (producer >= 0 && !keep[size_t(producer)]) {
      keep[size_t(producer)] = true;
      open.push_back(producer);
    }
  };
  for (TensorId root : roots) need(root);
  while (!open.empty()) {
    NodeId id = open.back();
    open.pop_back();
    for (TensorId in : graph.nodes[size_t(id)].inputs) need(in);
  }
  // An origin that is dead (a forward node that only its gradient outlives) is replaced by -1 in keep_nodes.
  keep_nodes(job, keep);
}

void rebind_batch(Graph& graph, int64_t bound) {
  auto bind = [&](Shape& shape) {
    for (auto& dim : shape)
      if (dim.sym == batch_sym) dim.size = dim.granule * bound;
  };
  for (auto& tensor : graph.tensors) bind(tensor.type.shape);
  for (auto& node : graph.nodes)
    for (auto& attr : node.attrs)
      if (auto* shape = std::get_if<Shape>(&attr.value)) bind(*shape);
  graph.batch_bound = bound;
}

void sort_nodes(Graph& graph) {
  std::vector<int> waiting(graph.nodes.size(), 0);
  std::vector<std::vector<NodeId>> users(graph.nodes.size());
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (TensorId in : graph.nodes[n].inputs)
      if (NodeId producer = graph.tensor(in).producer; producer >= 0) {
        users[size_t(producer)].push_back(NodeId(n));
        ++waiting[n];
      }
    if (waiting[n] == 0) ready.push(NodeId(n));
  }
  std::vector<NodeId> order, place(graph.nodes.size(), -1);
  while (!ready.empty()) {
    NodeId id = ready.top();
    ready.pop();
    place[size_t(id)] = NodeId(order.size());
    order.push_back(id);
    for (NodeId user : users[size_t(id)])
      if (--waiting[size_t(user)] == 0) ready.push(user);
  }
  check(order.size() == graph.nodes.size(), "a logical graph has no cycle");
  std::vector<Node> nodes;
  for (NodeId id : order) nodes.push_back(std::move(graph.nodes[size_t(id)]));
  for (auto& node : nodes)
    if (node.origin >= 0) node.origin = place[size_t(node.origin)];
  for (auto& tensor : graph.tensors)
    if (tensor.producer >= 0) tensor.producer = place[size_t(tensor.producer)];
  graph.nodes = std::move(nodes);
}

}  // namespace sluice
