// SPDX-License-Identifier: Apache-2.0
// Types, signatures, layouts, and that an actor touches only what its ports give it.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "plan/verify.h"

namespace sluice {
namespace {

bool has(const std::vector<Port>& ports, int reg) {
  return std::any_of(ports.begin(), ports.end(), [reg](auto& port) { return port.reg == reg; });
}

std::string text_of(const std::vector<Sbp>& in, const std::vector<Sbp>& out) {
  return sluice::text_of(NdSbp(in)) + "->" + sluice::text_of(NdSbp(out));
}

class Types {
 public:
  Types(const Plan& plan, const OpTable& ops) : plan_(plan), ops_(ops) {}

  void run() {
    for (auto& tensor : plan_.tensors) layout(tensor);
    for (auto& actor : plan_.actors) {
      actor_ = &actor;
      ports();
      for (auto& op : actor.ops) this->op(op);
      for (auto& move : actor.moves) this->move(move);
    }
  }

 private:
  const PlanTensor& at(int t) const { return plan_.tensors[size_t(t)]; }
  const std::string& axis(size_t a) const { return plan_.classes[size_t(actor_->cls)].mesh.axes[a].name; }

  [[noreturn]] void refuse(std::string_view what, std::string_view why, const Place& place = {}) const {
    throw Error(Code::value, fmt::format("types: {} of actor {}: {}", what, word_of(actor_->name), why), place);
  }
  [[noreturn]] void refuse(const PlanOp& op, std::string_view why) const {
    refuse(fmt::format("the op {} ({})", word_of(op.name), op.op), why, op.place);
  }

  static void layout(const PlanTensor& tensor) {
    if (tensor.layout == "row" || (tensor.layout == "col" && tensor.type.shape.size() >= 2)) return;
    throw Error(Code::value, fmt::format("types: the tensor {} {} cannot have the layout {}", word_of(tensor.name),
                                         text_of(tensor.type), word_of(tensor.layout)));
  }

  void ports() const {
    auto& kind = actor_->kind;
    if ((!actor_->ops.empty() && kind != "compute") || (!actor_->moves.empty() && kind != "move"))
      refuse("the kind " + word_of(kind), "it has ops or moves, which this kind has not");
    for (auto& port : actor_->out)
      if (plan_.registers[size_t(port.reg)].cls != actor_->cls)
        refuse(register_name(port.reg), "it writes another class");
    for (auto& port : actor_->in)
      if (kind == "compute" && plan_.registers[size_t(port.reg)].cls != actor_->cls)
        refuse(register_name(port.reg), "only a move reads another class");
    names(kind);
  }

  std::string register_name(int reg) const { return "the register " + word_of(plan_.registers[size_t(reg)].name); }

  void names(const std::string& kind) const {
    if (kind != "feed" && kind != "sink") return;
    if (actor_->tensors.size() != actor_->names.size())
      refuse("the kind " + kind,
             fmt::format("it has {} names for {} tensors", actor_->names.size(), actor_->tensors.size()));
    auto& ports = kind == "feed" ? actor_->out : actor_->in;
    for (int t : actor_->tensors) {
      int reg = plan_.tensors[size_t(t)].reg;
      bool constant = kind == "sink" && reg >= 0 && plan_.registers[size_t(reg)].producer < 0;
      bool held = std::any_of(ports.begin(), ports.end(), [&](const Port& port) { return port.reg == reg; });
      if (!held && !constant)
        refuse("the kind " + kind, fmt::format("none of its ports holds {}", word_of(plan_.tensors[size_t(t)].name)));
    }
  }

  bool may_read(int reg) const {
    return has(actor_->in, reg) || has(actor_->out, reg) || plan_.registers[size_t(reg)].producer < 0;
  }

  static bool same_place(const PlanTensor& a, const PlanTensor& b) { return a.reg == b.reg && a.offset == b.offset; }

  void operands(const PlanOp& op, const OpDef& def) const {
    for (int t : op.in) {
      if (at(t).cls != actor_->cls) refuse(op, fmt::format("{} lies on another class", word_of(at(t).name)));
      if (at(t).reg >= 0 && !may_read(at(t).reg))
        refuse(op, fmt::format("{} lies in {}, for which the actor has no port", word_of(at(t).name),
                               register_name(at(t).reg)));
    }
    for (size_t o = 0; o < op.out.size(); ++o) {
      auto& out = at(op.out[o]);
      if (out.cls != actor_->cls) refuse(op, fmt::format("{} lies on another class", word_of(out.name)));
      bool is_view = def.view != ViewKind::none && o == 0 && !op.in.empty() && same_place(out, at(op.in[0]));
      if (out.reg >= 0 && !is_view && !has(actor_->out, out.reg))
        refuse(op, fmt::format("{} lies in {}, for which the actor has no out-port", word_of(out.name),
                               register_name(out.reg)));
    }
  }

  void op(const PlanOp& op) {
    auto* def = ops_.find(op.op);
    if (!def) refuse(op, "there is no such op");
    operands(op, *def);
    std::vector<LogicalType> in;
    for (int t : op.in) in.push_back(at(t).type);
    try {
      attributes(op, complete_attrs(*def, op.attrs));
      outputs(op, infer_types(*def, in, op.attrs));
      signatures(op, signatures_of(*def, in, op.attrs));
    } catch (const Error& error) {
      if (error.message().starts_with("types: ")) throw;
      refuse(op, error.message());
    }
    layouts(op, *def);
    if (def->rate == Rate::accumulate) accumulator(op);
  }

  // Kernels and rules rely on every declared attribute being there, in order and of its kind. Values are not compared:
  // NaN is unequal to itself.
  void attributes(const PlanOp& op, const Attrs& complete) const {
    auto alike = [](const Attr& a, const Attr& b) { return a.name == b.name && a.value.index() == b.value.index(); };
    if (!std::equal(complete.begin(), complete.end(), op.attrs.begin(), op.attrs.end(), alike))
      refuse(op, "its attributes are not complete, or in another order");
  }

  void outputs(const PlanOp& op, const std::vector<LogicalType>& out) const {
    if (out.size() != op.out.size()) refuse(op, fmt::format("it has {} outputs, not {}", out.size(), op.out.size()));
    for (size_t o = 0; o < out.size(); ++o)
      if (auto& tensor = at(op.out[o]); !(tensor.type == out[o]))
        refuse(op,
               fmt::format("it makes {}, but {} is {}", text_of(out[o]), word_of(tensor.name), text_of(tensor.type)));
  }

  void signatures(const PlanOp& op, const std::vector<Signature>& legal) const {
    for (size_t a = 0; a < plan_.classes[size_t(actor_->cls)].mesh.axes.size(); ++a) {
      Signature used;
      for (int t : op.in) used.in.push_back(at(t).sbp[a]);
      for (int t : op.out) used.out.push_back(at(t).sbp[a]);
      if (std::find(legal.begin(), legal.end(), used) != legal.end()) continue;
      std::string list;
      for (auto& signature : legal) list += (list.empty() ? "" : ", ") + text_of(signature.in, signature.out);
      refuse(op, fmt::format("on axis {} it has {}, which is none of its signatures: {}", axis(a),
                             text_of(used.in, used.out), list));
    }
  }

  // Only a swap changes the layout, and then it is a view: the same bytes, read in the other order.
  void layouts(const PlanOp& op, const OpDef& def) const {
    bool swaps =
        def.view == ViewKind::swap && !op.in.empty() && !op.out.empty() && at(op.in[0]).layout != at(op.out[0]).layout;
    if (swaps && !same_place(at(op.in[0]), at(op.out[0])))
      refuse(op, "it changes the layout, but is no view of its input");
    for (size_t i = 0; i < op.in.size(); ++i)
      if (at(op.in[i]).layout == "col" && !(def.col_mask >> i & 1) && !(swaps && i == 0))
        refuse(op, fmt::format("its input {} has the layout col, which it does not take", word_of(at(op.in[i]).name)));
    for (size_t o = 0; o < op.out.size(); ++o)
      if (at(op.out[o]).layout == "col" && !(swaps && o == 0))
        refuse(op,
               fmt::format("its output {} has the layout col, which it does not make", word_of(at(op.out[o]).name)));
  }

  // What is summed over the firings of a step must outlive each firing, and is complete only when it is published.
  void accumulator(const PlanOp& op) const {
    if (actor_->firings == 1) return;
    for (int t : op.out) {
      auto port = std::find_if(actor_->out.begin(), actor_->out.end(), [&](auto& p) { return p.reg == at(t).reg; });
      if (port == actor_->out.end() || port->period != actor_->firings)
        refuse(op, fmt::format("{} must lie in a register that is published once a step", word_of(at(t).name)));
      for (auto& other : actor_->ops)
        if (&other != &op && std::find(other.in.begin(), other.in.end(), t) != other.in.end())
          refuse(op, fmt::format("{} is read by {} before it is complete", word_of(at(t).name), word_of(other.name)));
    }
  }

  void move(const PlanMove& move) const {
    auto &from = at(move.from), &to = at(move.to);
    auto what = fmt::format("the move {} from {} to {}", move.move, word_of(from.name), word_of(to.name));
    if (!(from.type == to.type))
      refuse(what, fmt::format("it changes the type from {} to {}", text_of(from.type), text_of(to.type)));
    if (from.layout != "row" || to.layout != "row") refuse(what, "both ends must have the layout row");
    if (to.cls != actor_->cls) refuse(what, "its result lies on another class than the actor");
    if (from.reg < 0 || !may_read(from.reg)) refuse(what, "it reads what no in-port of the actor gives");
    if (to.reg < 0 || !has(actor_->out, to.reg)) refuse(what, "it writes what no out-port of the actor gives");
  }

  const Plan& plan_;
  const OpTable& ops_;
  const PlanActor* actor_ = nullptr;
};

}  // namespace

void verify_types(const Plan& plan, const OpTable& ops) {
  verify_structure(plan);
  Types(plan, ops).run();
}

}  // namespace sluice
