// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "planner/elimination.h"
#include "planner/pass.h"

namespace sluice::passes {
namespace {

// Bytes decide; work is weighed so that doing everything everywhere is not free. One byte sent stands for as many flops
// and bytes of memory as a core does while a 1.5 GB/s link carries it (90 GFLOP/s, 20 GB/s), and a message for the
// bytes that such a link carries in 5 us.
constexpr double flops_per_byte = 64, memory_per_byte = 16;
constexpr double bytes_per_message = 8192;

bool has_batch(const LogicalType& type) {
  return std::any_of(type.shape.begin(), type.shape.end(), [](const Dim& dim) { return dim.sym != fixed_sym; });
}

bool splits_batch(const LogicalType& type, Sbp sbp) {
  return sbp.is_split() && type.shape[size_t(sbp.dim)].sym != fixed_sym;
}

class Placer {
 public:
  explicit Placer(PlanState& state) : state_(state), graph_(state.graph()) {}

  void run() {
    decide_variables();
    for (size_t n = 0; n < graph_.nodes.size(); ++n) decide_node(NodeId(n));
    for (size_t n = 0; n < graph_.nodes.size(); ++n) connect_inputs(NodeId(n));
    connect_variables();
    connect_outputs();
    auto answer = solver_.solve();
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      state_.nodes[n].sbp = node_choices_[n][size_t(answer.choice[size_t(node_decision_[n])])];
    for (size_t v = 0; v < graph_.variables.size(); ++v)
      state_.variables[v].sbp = variable_choices_[v][size_t(answer.choice[size_t(variable_decision_[v])])];
    state_.plan.notes.push_back(
        {"placement", answer.exact ? "least cost, exact"
                                   : "the dearest choices of the widest nodes were left out: not proved least"});
  }

 private:
  const Mesh& mesh_of(int cls) const { return state_.mesh(cls); }

  // All combinations of one choice an axis.
  template <class T>
  static std::vector<std::vector<T>> product(const std::vector<std::vector<T>>& axes) {
    std::vector<std::vector<T>> all{{}};
    for (auto& axis : axes) {
      std::vector<std::vector<T>> next;
      for (auto& head : all)
        for (auto& choice : axis) {
          next.push_back(head);
          next.back().push_back(choice);
        }
      all = std::move(next);
    }
    return all;
  }

  // S of any dim longer than one, and B; a pin or the meaning of a dp axis leaves one.
  std::vector<Sbp> axis_choices(size_t v, const Axis& axis) {
    auto& info = state_.variables[v];
    auto& type = graph_.type(graph_.variables[v].value);
    bool is_state = !graph_.variables[v].of.empty();
    if (auto pin = info.pins.find(axis.name); pin != info.pins.end() && !(is_state && type.shape.empty())) {
      Sbp sbp = parse_sbp(pin->second);
      if (sbp.is_partial() || (sbp.is_split() && sbp.dim >= int(type.shape.size())))
        throw Error(Code::usage,
                    fmt::format("'{}' {} cannot be {} on axis {}", graph_.variables[v].name, text_of(type.shape),
                                pin->second, axis.name),
                    rule_place(v), "a variable is B or S(dim) of one of its dims");
      return {sbp};
    }
    bool splits = !type.shape.empty() && type.shape[0].size > 1;
    bool zero = is_state && state_.config.zero_stage.value >= 1 &&
                std::count(state_.config.zero_axes.begin(), state_.config.zero_axes.end(), axis.name);
    if (zero) return {splits ? Sbp::split(0) : Sbp::broadcast()};
    if (axis.name == "dp") return {Sbp::broadcast()};
    if (is_server(info.cls) && splits) return {Sbp::split(0)};
    std::vector<Sbp> choices{Sbp::broadcast()};
    for (size_t d = 0; d < type.shape.size(); ++d)
      if (type.shape[d].size > 1) choices.push_back(Sbp::split(int(d)));
    return choices;
  }

  bool is_server(int cls) const { return cls >= state_.stages && cls != state_.client; }

  Place rule_place(size_t v) const {
    for (auto& rule : state_.config.rules)
      if (rule.sbp == state_.variables[v].pins) return rule.place;
    return {};
  }

  void decide_variables() {
    for (size_t v = 0; v < graph_.variables.size(); ++v) {
      auto& mesh = mesh_of(state_.variables[v].cls);
      std::vector<std::vector<Sbp>> axes;
      for (auto& axis : mesh.axes) {
        check_pins(v, mesh);
        axes.push_back(axis_choices(v, axis));
      }
      auto all = product(axes);
      auto& type = graph_.type(graph_.variables[v].value);
      std::vector<double> cost;
      for (auto& nd : all) {  // memory breaks ties: a split variable leaves room
        double bytes = double(bytes_of(type.dtype));
        for (int64_t size : local_bound(type.shape, nd, mesh)) bytes *= double(size);
        cost.push_back(bytes * 1e-3);
      }
      variable_choices_.push_back(std::move(all));
      variable_decision_.push_back(solver_.add(cost));
    }
  }

  void check_pins(size_t v, const Mesh& mesh) const {
    for (auto& [axis, sbp] : state_.variables[v].pins)
      if (mesh.axis(axis) < 0)
        throw Error(Code::usage, fmt::format("the mesh of '{}' has no axis '{}'", graph_.variables[v].name, axis),
                    rule_place(v), "name an axis of its mesh");
  }

  void types_of(const Node& node, std::vector<LogicalType>& in, std::vector<LogicalType>& out) const {
    for (TensorId t : node.inputs) in.push_back(graph_.type(t));
    for (TensorId t : node.outputs) out.push_back(graph_.type(t));
  }

  // dp means that the batch is split: an op on the batch takes no other signature there, if it has one.
  static std::vector<Signature> batch_split(std::vector<Signature> all, const std::vector<LogicalType>& in,
                                            const std::vector<LogicalType>& out) {
    auto splits = [&](const Signature& s) {
      for (size_t i = 0; i < in.size(); ++i)
        if (has_batch(in[i]) && !splits_batch(in[i], s.in[i])) return false;
      for (size_t o = 0; o < out.size(); ++o)
        if (has_batch(out[o]) && !splits_batch(out[o], s.out[o])) return false;
      return true;
    };
    auto any = [](auto& types) {
      return std::any_of(types.begin(), types.end(), [](auto& t) { return has_batch(t); });
    };
    if (!any(in) && !any(out)) return all;
    std::vector<Signature> kept;
    for (auto& s : all)
      if (splits(s)) kept.push_back(s);
    return kept.empty() ? all : kept;
  }

  void decide_node(NodeId id) {
    auto& node = graph_.nodes[size_t(id)];
    auto& op = state_.tables.ops.at(node.op);
    auto& mesh = mesh_of(state_.nodes[size_t(id)].cls);
    std::vector<LogicalType> in, out;
    types_of(node, in, out);
    auto signatures = signatures_of(op, in, node.attrs);
    std::vector<std::vector<Signature>> axes;
    for (auto& axis : mesh.axes) axes.push_back(axis.name == "dp" ? batch_split(signatures, in, out) : signatures);
    std::vector<NodePlacement> choices;
    std::vector<double> cost;
    for (auto& nd : product(axes)) {
      NodePlacement place{std::vector<NdSbp>(in.size()), std::vector<NdSbp>(out.size())};
      for (auto& s : nd) {
        for (size_t i = 0; i < in.size(); ++i) place.in[i].push_back(s.in[i]);
        for (size_t o = 0; o < out.size(); ++o) place.out[o].push_back(s.out[o]);
      }
      cost.push_back(work(op, node, in, out, place, mesh));
      choices.push_back(std::move(place));
    }
    node_choices_.push_back(std::move(choices));
    node_decision_.push_back(solver_.add(std::move(cost)));
  }

  // The work of the largest shard, in bytes that a link would carry in that time.
  double work(const OpDef& op, const Node& node, const std::vector<LogicalType>& in,
              const std::vector<LogicalType>& out, const NodePlacement& place, const Mesh& mesh) const {
    auto local = [&](const std::vector<LogicalType>& types, const std::vector<NdSbp>& sbp) {
      std::vector<LogicalType> shard;
      for (size_t i = 0; i < types.size(); ++i)
        shard.push_back({types[i].dtype, fixed_shape(local_bound(types[i].shape, sbp[i], mesh))});
      return shard;
    };
    Cost cost = cost_of(op, local(in, place.in), local(out, place.out), node.attrs);
    return (cost.flops / flops_per_byte + cost.bytes / memory_per_byte) * times(state_.nodes[size_t(node_index(node))]);
  }

  NodeId node_index(const Node& node) const { return NodeId(&node - graph_.nodes.data()); }
  double times(const NodeInfo& info) const { return info.micro ? state_.micro_batches : 1; }

  double move_cost(const LogicalType& type, int from_cls, const NdSbp& from, int to_cls, const NdSbp& to) {
    if (from_cls == to_cls && from == to) return 0;
    auto key = std::tuple(text_of(type), from_cls, from, to_cls, to);
    if (auto at = moves_.find(key); at != moves_.end()) return at->second;
    PlacedType a{type, &mesh_of(from_cls), from}, b{type, &mesh_of(to_cls), to};
    MoveCost cost = cost_of(move_for(state_.tables.moves, a, b), a, b);
    double ranks = std::max(a.mesh->size(), b.mesh->size());
    return moves_[key] = (cost.bytes + cost.messages * bytes_per_message) / ranks + 1;
  }

  NdSbp input_sbp(const Input& input, int cls) const {
    NdSbp sbp;
    auto& type = graph_.type(input.tensor);
    for (auto& axis : mesh_of(cls).axes)
      sbp.push_back(axis.name == "dp" && !type.shape.empty() && type.shape[0].sym != fixed_sym ? Sbp::split(0)
                                                                                               : Sbp::broadcast());
    return sbp;
  }

  const Input* input_of(TensorId tensor) const {
    for (auto& input : graph_.inputs)
      if (input.tensor == tensor) return &input;
    return nullptr;
  }

  void connect_inputs(NodeId id) {
    auto& node = graph_.nodes[size_t(id)];
    int cls = state_.nodes[size_t(id)].cls, decision = node_decision_[size_t(id)];
    auto& choices = node_choices_[size_t(id)];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      TensorId t = node.inputs[i];
      auto& type = graph_.type(t);
      double scale = times(state_.nodes[size_t(id)]);
      if (auto* input = input_of(t)) {
        int from_cls = input->source >= 0 ? cls : state_.client;
        NdSbp from = input->source >= 0 ? input_sbp(*input, cls) : NdSbp(mesh_of(from_cls).axes.size());
        for (size_t c = 0; c < choices.size(); ++c)
          solver_.add_cost(decision, c, scale * move_cost(type, from_cls, from, cls, choices[c].in[i]));
      } else if (int v = state_.variable_of(t); v >= 0) {
        auto& from = variable_choices_[size_t(v)];
        pair(variable_decision_[size_t(v)], from.size(), decision, choices.size(), [&](size_t f, size_t c) {
          return move_cost(type, state_.variables[size_t(v)].cls, from[f], cls, choices[c].in[i]);
        });
      } else {
        auto& tensor = graph_.tensor(t);
        auto& from = node_choices_[size_t(tensor.producer)];
        int from_cls = state_.nodes[size_t(tensor.producer)].cls;
        pair(node_decision_[size_t(tensor.producer)], from.size(), decision, choices.size(), [&](size_t f, size_t c) {
          return scale * move_cost(type, from_cls, from[f].out[size_t(tensor.output)], cls, choices[c].in[i]);
        });
      }
    }
  }

  template <class F>
  void pair(int a, size_t as, int b, size_t bs, F cost) {
    std::vector<double> table(as * bs);
    for (size_t i = 0; i < as; ++i)
      for (size_t j = 0; j < bs; ++j) table[i * bs + j] = cost(i, j);
    solver_.add_pair(a, b, table);
  }

  void connect_variables() {
    for (size_t v = 0; v < graph_.variables.size(); ++v) {
      auto& variable = graph_.variables[v];
      if (variable.next == no_tensor) continue;
      auto& tensor = graph_.tensor(variable.next);
      if (tensor.producer < 0) continue;
      auto& from = node_choices_[size_t(tensor.producer)];
      auto& to = variable_choices_[v];
      pair(node_decision_[size_t(tensor.producer)], from.size(), variable_decision_[v], to.size(),
           [&](size_t f, size_t c) {
             return move_cost(tensor.type, state_.nodes[size_t(tensor.producer)].cls,
                              from[f].out[size_t(tensor.output)], state_.variables[v].cls, to[c]);
           });
    }
  }

  void connect_outputs() {
    for (auto& output : graph_.outputs) {
      auto& tensor = graph_.tensor(output.tensor);
      if (tensor.producer < 0) continue;
      auto& from = node_choices_[size_t(tensor.producer)];
      NdSbp client(mesh_of(state_.client).axes.size());
      for (size_t c = 0; c < from.size(); ++c)
        solver_.add_cost(node_decision_[size_t(tensor.producer)], c,
                         move_cost(tensor.type, state_.nodes[size_t(tensor.producer)].cls,
                                   from[c].out[size_t(tensor.output)], state_.client, client));
    }
  }

  PlanState& state_;
  const Graph& graph_;
  Elimination solver_;
  std::vector<std::vector<NodePlacement>> node_choices_;
  std::vector<std::vector<NdSbp>> variable_choices_;
  std::vector<int> node_decision_, variable_decision_;
  std::map<std::tuple<std::string, int, NdSbp, int, NdSbp>, double> moves_;
};

}  // namespace

static void run(PlanState& state) { Placer(state).run(); }

extern constinit const PassDef place{
    .name = "place",
    .doc =
        "Chooses the SBP of every operand and variable: pins first, then the least bytes moved plus work, exactly. "
        "On an axis named dp the batch is split and variables are whole; on servers variables are split.",
    .run = run,
};

}  // namespace sluice::passes
