// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "planner/pass.h"

namespace sluice::passes {
namespace {

class Mover {
 public:
  explicit Mover(PlanState& state) : state_(state), graph_(state.graph()) {}

  void run() {
    make_variables();
    for (size_t n = 0; n < graph_.nodes.size(); ++n) make_op(NodeId(n));
    make_sinks();
    make_next();
    state_.root.resize(state_.plan.tensors.size());
    for (size_t t = 0; t < state_.root.size(); ++t) state_.root[t] = int(t);
  }

 private:
  using Key = std::tuple<TensorId, int, NdSbp>;

  int add_tensor(TensorId logical, int cls, const NdSbp& sbp, std::string name) {
    auto& type = graph_.type(logical);
    PlanTensor tensor{.name = std::move(name), .type = type, .cls = cls, .sbp = sbp};
    int64_t elements = 1;
    for (int64_t size : local_bound(type.shape, sbp, state_.mesh(cls)))
      if (size < 0 || __builtin_mul_overflow(elements, size, &elements))
        throw Error(Code::value, fmt::format("'{}' {} is too large for memory", tensor.name, text_of(type)));
    tensor.bytes = (elements * bytes_of(type.dtype) + 63) / 64 * 64;
    state_.plan.tensors.push_back(std::move(tensor));
    int id = int(state_.plan.tensors.size()) - 1;
    versions_[logical].push_back(id);
    at_[{logical, cls, sbp}] = id;
    return id;
  }

  std::string name_at(TensorId logical, int cls, const NdSbp& sbp) const {
    return fmt::format("{}@{}{}", graph_.tensor(logical).name, state_.plan.classes[size_t(cls)].name, text_of(sbp));
  }

  const Input* input_of(TensorId tensor) const {
    for (auto& input : graph_.inputs)
      if (input.tensor == tensor) return &input;
    return nullptr;
  }

  bool micro(TensorId tensor) const {
    if (state_.micro_batches == 1) return false;
    if (auto* input = input_of(tensor)) {
      auto& shape = graph_.type(tensor).shape;
      return input->source >= 0 || std::any_of(shape.begin(), shape.end(), [](auto& d) { return d.sym != fixed_sym; });
    }
    NodeId producer = graph_.tensor(tensor).producer;
    if (producer < 0) return false;
    bool accumulates = state_.tables.ops.at(graph_.nodes[size_t(producer)].op).rate == Rate::accumulate;
    return state_.nodes[size_t(producer)].micro && !accumulates;
  }

  // The field of a data source, or a fed input, as it comes from outside; one source actor a class, one feed in all.
  int make_input(const Input& input, int cls) {
    Item::Kind kind = input.source >= 0 ? Item::Kind::source : Item::Kind::feed;
    int home = kind == Item::Kind::source ? cls : state_.client;
    NdSbp sbp(state_.mesh(home).axes.size());
    auto& shape = graph_.type(input.tensor).shape;
    if (kind == Item::Kind::source)
      for (size_t a = 0; a < sbp.size(); ++a)
        if (state_.mesh(home).axes[a].name == "dp" && !shape.empty() && shape[0].sym != fixed_sym)
          sbp[a] = Sbp::split(0);
    if (auto at = at_.find({input.tensor, home, sbp}); at != at_.end()) return at->second;
    bool per_micro = micro(input.tensor);
    auto item = std::find_if(state_.items.begin(), state_.items.end(), [&](const Item& each) {
      return each.kind == kind && each.cls == home && each.source == input.source && each.micro == per_micro;
    });
    if (item == state_.items.end()) {
      Item made{.kind = kind, .name = kind == Item::Kind::source ? fmt::format("source_{}", input.source) : "feed"};
      made.cls = home;
      made.stream = 1;
      made.source = input.source;
      made.micro = per_micro;
      state_.items.push_back(made);
      item = state_.items.end() - 1;
    }
    size_t index = size_t(item - state_.items.begin());
    int id =
        add_tensor(input.tensor, home, sbp,
                   kind == Item::Kind::source ? name_at(input.tensor, home, sbp) : graph_.tensor(input.tensor).name);
    state_.items[index].out.push_back(id);
    state_.items[index].names.push_back(kind == Item::Kind::source ? std::to_string(input.field) : input.name);
    return id;
  }

  // The plan tensor of a logical tensor as `cls` wants it; hops are appended from the nearest version there is.
  int tensor_at(TensorId logical, int cls, const NdSbp& sbp, Phase phase) {
    if (auto at = at_.find({logical, cls, sbp}); at != at_.end()) return at->second;
    if (auto* input = input_of(logical)) {
      make_input(*input, cls);
      if (auto at = at_.find({logical, cls, sbp}); at != at_.end()) return at->second;
    }
    PlacedType to{graph_.type(logical), &state_.mesh(cls), sbp};
    int from = -1;
    double least = 0;
    for (int version : versions_.at(logical)) {
      PlacedType here = placed(version);
      MoveCost cost = cost_of(move_for(state_.tables.moves, here, to), here, to);
      double total = cost.bytes + cost.messages;
      if (from < 0 || total < least) from = version, least = total;
    }
    return make_hops(logical, from, to, cls, phase);
  }

  PlacedType placed(int id) const {
    auto& tensor = state_.plan.tensors[size_t(id)];
    return {tensor.type, &state_.mesh(tensor.cls), tensor.sbp};
  }

  int make_hops(TensorId logical, int from, const PlacedType& to, int cls, Phase phase) {
    PlacedType here = placed(from);
    auto& move = move_for(state_.tables.moves, here, to);
    auto stations = move.between ? move.between(here, to) : std::vector<PlacedType>{};
    stations.push_back(to);
    for (auto& station : stations) {
      int at_class = &station == &stations.back() ? cls : class_of(*station.mesh);
      int next;
      if (auto at = at_.find({logical, at_class, station.sbp}); at != at_.end() && &station != &stations.back())
        next = at->second;
      else
        next = add_tensor(logical, at_class, station.sbp, name_at(logical, at_class, station.sbp)),
        add_hop(move.name, from, next, micro(logical), phase);
      from = next;
    }
    return from;
  }

  int class_of(const Mesh& mesh) const {
    for (size_t c = 0; c < state_.plan.classes.size(); ++c)
      if (state_.plan.classes[c].mesh == mesh) return int(c);
    broken_invariant("a move passes through a mesh that the plan lacks", std::source_location::current());
  }

  void add_hop(std::string_view move, int from, int to, bool per_micro, Phase phase) {
    Item hop{.kind = Item::Kind::hop, .name = state_.plan.tensors[size_t(to)].name, .move = std::string(move)};
    hop.in = {from};
    hop.out = {to};
    hop.cls = state_.plan.tensors[size_t(to)].cls;
    hop.stream = 1;
    hop.micro = per_micro;
    hop.phase = phase;
    state_.items.push_back(std::move(hop));
  }

  void make_variables() {
    for (size_t v = 0; v < graph_.variables.size(); ++v) {
      auto& variable = graph_.variables[v];
      auto& info = state_.variables[v];
      state_.variable_value.push_back(add_tensor(variable.value, info.cls, info.sbp, variable.name));
      state_.variable_next.push_back(-1);
    }
  }

  void make_op(NodeId id) {
    auto& node = graph_.nodes[size_t(id)];
    auto& info = state_.nodes[size_t(id)];
    Item item{.kind = Item::Kind::op, .node = id, .name = node.name};
    item.cls = info.cls;
    item.micro = info.micro;
    item.phase = node.phase;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      item.in.push_back(tensor_at(node.inputs[i], info.cls, info.sbp.in[i], node.phase));
    for (size_t o = 0; o < node.outputs.size(); ++o)
      item.out.push_back(add_tensor(node.outputs[o], info.cls, info.sbp.out[o], graph_.tensor(node.outputs[o]).name));
    state_.items.push_back(std::move(item));
  }

  void make_sinks() {
    NdSbp whole(state_.mesh(state_.client).axes.size());
    for (bool per_micro : {false, true}) {
      Item sink{.kind = Item::Kind::sink, .name = per_micro ? "sink_micro" : "sink"};
      sink.cls = state_.client;
      sink.stream = 1;
      sink.micro = per_micro;
      for (auto& output : graph_.outputs) {
        if (micro(output.tensor) != per_micro) continue;
        sink.in.push_back(tensor_at(output.tensor, state_.client, whole, Phase::forward));
        sink.names.push_back(output.name);
      }
      if (!sink.in.empty()) state_.items.push_back(std::move(sink));
    }
  }

  // Who else reads a variable's next value would see the register's tokens, one version early: they get a copy.
  bool shared(TensorId next, size_t variable) const {
    for (auto& node : graph_.nodes)
      if (std::count(node.inputs.begin(), node.inputs.end(), next)) return true;
    for (auto& output : graph_.outputs)
      if (output.tensor == next) return true;
    for (size_t v = 0; v < graph_.variables.size(); ++v)
      if (graph_.variables[v].value == next || (v != variable && graph_.variables[v].next == next)) return true;
    return graph_.tensor(next).producer < 0;
  }

  void make_next() {
    for (size_t v = 0; v < graph_.variables.size(); ++v) {
      TensorId next = graph_.variables[v].next;
      if (next == no_tensor || next == graph_.variables[v].value) continue;
      auto& info = state_.variables[v];
      int id = tensor_at(next, info.cls, info.sbp, Phase::optimizer);
      if (shared(next, v)) {
        int copy = add_tensor(next, info.cls, info.sbp, graph_.variables[v].name + ".next");
        add_hop("exchange", id, copy, false, Phase::optimizer);
        id = copy;
      }
      state_.variable_next[v] = id;
    }
  }

  PlanState& state_;
  const Graph& graph_;
  std::map<Key, int> at_;
  std::map<TensorId, std::vector<int>> versions_;
};

}  // namespace

static void run(PlanState& state) { Mover(state).run(); }

extern constinit const PassDef moves{
    .name = "moves",
    .doc = "Makes the plan's tensors and puts a hop wherever a consumer wants another mesh or SBP than there is.",
    .run = run,
};

}  // namespace sluice::passes
