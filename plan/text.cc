// SPDX-License-Identifier: Apache-2.0
// The text form of a plan: one line a class, stream, register, tensor, actor, op and move, grouped by class.
//   plan mlp seed=7 micro=4 batch=128 device=cpu
//   class 0 main mesh=main(dp=2,tp=2)@0 arena=8192 least=8000
//     stream compute at=4096 bytes=4096
//     register r0 fc1.weight bytes=4096 at=0 slots=1 full=1 by=a2 variable=fc1.weight holds=[%0]
//       tensor %0 fc1.weight float32[32,32] (S(0),B) in=r0 at=0 bytes=4096
//     actor a2 update compute stream=0 key=9 in=[r3*4] out=[r0] phase=optimizer
//       op sgd fc1.weight (%0,%7)->(%0) {lr=0.1} line=train.py:12
// A field that has its default is left out; order of fields is free; '#' starts a comment line. A number that follows
// % r a is an index into the plan's tensors, registers and actors, so every index stands exactly once.
#include "base/text.h"

#include <fmt/format.h>

#include <array>

#include "plan/plan.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 3> phase_names{"forward", "backward", "optimizer"};

template <class T>
std::string with(std::string_view key, const T& value, const T& otherwise) {
  return value == otherwise ? std::string() : fmt::format(" {}={}", key, value);
}

std::string with_word(std::string_view key, const std::string& value) {
  return value.empty() ? std::string() : fmt::format(" {}={}", key, word_of(value));
}

std::string list(const std::vector<int>& indices, char prefix) {
  std::string text;
  for (int i : indices) text += fmt::format("{}{}{}", text.empty() ? "" : ",", prefix, i);
  return text;
}

std::string ports(std::string_view key, const std::vector<Port>& ports) {
  if (ports.empty()) return {};
  std::string text;
  for (auto& port : ports)
    text += fmt::format("{}r{}{}", text.empty() ? "" : ",", port.reg,
                        port.period == 1 ? std::string() : fmt::format("*{}", port.period));
  return fmt::format(" {}=[{}]", key, text);
}

std::string attrs_text(const Attrs& attrs) {
  std::string text;
  for (auto& attr : attrs)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", word_of(attr.name), text_of(attr.value));
  return attrs.empty() ? std::string() : " {" + text + "}";
}

std::string mesh_text(const Mesh& mesh) {
  std::string axes;
  for (auto& axis : mesh.axes) axes += fmt::format("{}{}={}", axes.empty() ? "" : ",", word_of(axis.name), axis.size);
  return fmt::format("{}({})@{}", word_of(mesh.name), axes, mesh.first_rank);
}

// Prints each tensor once: below its register where it has one, else with its class.
class Printer {
 public:
  explicit Printer(const Plan& plan) : plan_(plan), of_register_(plan.registers.size()) {
    for (size_t t = 0; t < plan.tensors.size(); ++t)
      if (below_register(plan.tensors[t])) of_register_[size_t(plan.tensors[t].reg)].push_back(t);
  }

  std::string run() {
    add("plan {} seed={}{}{}{} device={}\n", word_of(plan_.job), plan_.seed, with("micro", plan_.micro_batches, 1),
        with("batch", plan_.batch_bound, int64_t(0)), plan_.exact ? " exact" : "", word_of(plan_.device));
    for (auto& [key, text] : plan_.notes) add("note {} {}\n", word_of(key), quote(text));
    for (auto& source : plan_.sources)
      add("source {}{}{}\n", word_of(source.reader), source.shuffle ? "" : " fixed", attrs_text(source.attrs));
    for (size_t c = 0; c < plan_.classes.size(); ++c) cls(int(c));
    return std::move(text_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  void cls(int c) {
    auto& cls = plan_.classes[size_t(c)];
    add("\nclass {} {} mesh={}{} arena={} least={}{}\n", c, word_of(cls.name), mesh_text(cls.mesh),
        with_word("pool", cls.pool), cls.arena_bytes, cls.arena_bytes_lower_bound, with("stage", cls.stage, 0));
    for (auto& stream : cls.streams)
      add("  stream {} at={} bytes={}\n", word_of(stream.name), stream.scratch_offset, stream.scratch_bytes);
    for (size_t r = 0; r < plan_.registers.size(); ++r)
      if (plan_.registers[r].cls == c) reg(int(r));
    for (size_t t = 0; t < plan_.tensors.size(); ++t)
      if (plan_.tensors[t].cls == c && !below_register(plan_.tensors[t])) tensor(t, "  ");
    for (size_t a = 0; a < plan_.actors.size(); ++a)
      if (plan_.actors[a].cls == c) actor(a);
  }

  bool below_register(const PlanTensor& tensor) const {
    return tensor.reg >= 0 && size_t(tensor.reg) < plan_.registers.size() &&
           plan_.registers[size_t(tensor.reg)].cls == tensor.cls;
  }

  void reg(int r) {
    auto& reg = plan_.registers[size_t(r)];
    add("  register r{} {} bytes={} at={} slots={}{}{}{} holds=[{}]\n", r, word_of(reg.name), reg.bytes, reg.offset,
        reg.slots, with("full", reg.initial, 0),
        reg.producer < 0 ? std::string() : fmt::format(" by=a{}", reg.producer), with_word("variable", reg.variable),
        list(reg.tensors, '%'));
    for (size_t t : of_register_[size_t(r)]) tensor(t, "    ");
  }

  void tensor(size_t t, std::string_view indent) {
    auto& tensor = plan_.tensors[t];
    add("{}tensor %{} {} {} {}{}{} at={} bytes={}\n", indent, t, word_of(tensor.name), text_of(tensor.type),
        text_of(tensor.sbp), tensor.layout == "row" ? std::string() : " layout=" + word_of(tensor.layout),
        tensor.reg < 0 ? std::string() : fmt::format(" in=r{}", tensor.reg), tensor.offset, tensor.bytes);
  }

  void actor(size_t a) {
    auto& actor = plan_.actors[a];
    std::string names;
    for (auto& name : actor.names) names += (names.empty() ? "" : ",") + word_of(name);
    add("  actor a{} {} {} stream={} key={}{}{}{}{}{}{}{}\n", a, word_of(actor.name), word_of(actor.kind), actor.stream,
        actor.key, with("firings", actor.firings, 1), ports("in", actor.in), ports("out", actor.out),
        actor.phase == Phase::forward ? std::string() : fmt::format(" phase={}", phase_names[size_t(actor.phase)]),
        with("source", actor.source, -1), names.empty() ? std::string() : " names=[" + names + "]",
        actor.tensors.empty() ? std::string() : " tensors=[" + list(actor.tensors, '%') + "]");
    for (auto& op : actor.ops) this->op(op);
    for (auto& move : actor.moves) add("    move {} %{}->%{}\n", word_of(move.move), move.from, move.to);
  }

  void op(const PlanOp& op) {
    std::string work, place;
    if (op.workspace_offset != 0 || op.workspace_bytes != 0)
      work = fmt::format(" work={}+{}", op.workspace_offset, op.workspace_bytes);
    if (!(op.place == Place{})) place = fmt::format(" line={}:{}", word_of(op.place.file), op.place.line);
    add("    op {} {} ({})->({}){}{}{}\n", word_of(op.op), word_of(op.name), list(op.in, '%'), list(op.out, '%'),
        attrs_text(op.attrs), work, place);
  }

  const Plan& plan_;
  std::vector<std::vector<size_t>> of_register_;
  std::string text_;
};

}  // namespace

std::string text_of(const Plan& plan) { return Printer(plan).run(); }

}  // namespace sluice
