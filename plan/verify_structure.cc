// SPDX-License-Identifier: Apache-2.0
// What any reader of a plan relies on: indices in range, counts and sizes that cannot overflow.
#include <fmt/format.h>

#include "base/text.h"
#include "plan/verify.h"

namespace sluice {
namespace {

constexpr int64_t bytes_max = int64_t(1) << 56;  // of anything: sums of a few stay far from overflow
constexpr int ranks_max = 1 << 24;
constexpr int firings_max = 1 << 24;
constexpr size_t axes_max = 16;

[[noreturn]] void broken(std::string why) { throw Error(Code::value, std::move(why)); }

void index(int i, size_t size, int least, std::string_view of, std::string_view kind, const std::string& name) {
  if (i < least || i >= int64_t(size))
    broken(fmt::format("the {} {} names {} {}, which does not exist", kind, word_of(name), of, i));
}

void in_range(int64_t value, int64_t least, int64_t most, std::string_view what, std::string_view kind,
              const std::string& name) {
  if (value < least || value > most) broken(fmt::format("the {} {} has {} {}", kind, word_of(name), value, what));
}

void check_class(const PlanClass& cls) {
  in_range(cls.mesh.first_rank, 0, ranks_max, "as its first rank", "mesh", cls.mesh.name);
  in_range(int64_t(cls.mesh.axes.size()), 0, axes_max, "axes", "mesh", cls.mesh.name);
  int64_t size = 1;
  for (auto& axis : cls.mesh.axes) {
    in_range(axis.size, 1, ranks_max, "ranks on axis " + word_of(axis.name), "mesh", cls.mesh.name);
    size *= axis.size;  // both factors are at most 2^24
    in_range(size, 1, ranks_max, "ranks", "mesh", cls.mesh.name);
  }
  in_range(cls.arena_bytes, 0, bytes_max, "bytes of arena", "class", cls.name);
  for (auto& stream : cls.streams) {
    in_range(stream.scratch_offset, 0, bytes_max, "as its offset", "stream", stream.name);
    in_range(stream.scratch_bytes, 0, bytes_max, "bytes", "stream", stream.name);
  }
}

void check_tensor(const Plan& plan, const PlanTensor& tensor) {
  index(tensor.cls, plan.classes.size(), 0, "class", "tensor", tensor.name);
  index(tensor.reg, plan.registers.size(), -1, "register", "tensor", tensor.name);
  in_range(tensor.offset, 0, bytes_max, "as its offset", "tensor", tensor.name);
  in_range(tensor.bytes, 0, bytes_max, "bytes", "tensor", tensor.name);
  try {
    check_type(tensor.type);
  } catch (const Error& error) {
    broken(fmt::format("the tensor {}: {}", word_of(tensor.name), error.message()));
  }
  auto& mesh = plan.classes[size_t(tensor.cls)].mesh;
  if (tensor.sbp.size() != mesh.axes.size())
    broken(fmt::format("the tensor {} has SBP {}, but its mesh {} has {} axes", word_of(tensor.name),
                       text_of(tensor.sbp), word_of(mesh.name), mesh.axes.size()));
  for (auto sbp : tensor.sbp)
    if (sbp.kind > Sbp::Pmin || (sbp.is_split() && (sbp.dim < 0 || size_t(sbp.dim) >= tensor.type.shape.size())))
      broken(fmt::format("the tensor {} of type {} cannot have SBP {}", word_of(tensor.name), text_of(tensor.type),
                         text_of(tensor.sbp)));
}

void check_register(const Plan& plan, const PlanRegister& reg) {
  index(reg.cls, plan.classes.size(), 0, "class", "register", reg.name);
  index(reg.producer, plan.actors.size(), -1, "actor", "register", reg.name);
  in_range(reg.slots, 1, firings_max, "slots", "register", reg.name);
  in_range(reg.initial, 0, reg.slots, "slots that start full", "register", reg.name);
  in_range(reg.bytes, 0, bytes_max / reg.slots, "bytes a slot", "register", reg.name);
  in_range(reg.offset, 0, bytes_max, "as its offset", "register", reg.name);
  for (int t : reg.tensors) index(t, plan.tensors.size(), 0, "tensor", "register", reg.name);
}

void check_op(const Plan& plan, const PlanOp& op) {
  for (int t : op.in) index(t, plan.tensors.size(), 0, "tensor", "op", op.name);
  for (int t : op.out) index(t, plan.tensors.size(), 0, "tensor", "op", op.name);
  in_range(op.workspace_offset, 0, bytes_max, "as its workspace's offset", "op", op.name);
  in_range(op.workspace_bytes, 0, bytes_max, "bytes of workspace", "op", op.name);
}

void check_actor(const Plan& plan, const PlanActor& actor) {
  index(actor.cls, plan.classes.size(), 0, "class", "actor", actor.name);
  index(actor.stream, plan.classes[size_t(actor.cls)].streams.size(), 0, "stream", "actor", actor.name);
  index(actor.source, plan.sources.size(), -1, "source", "actor", actor.name);
  in_range(actor.firings, 1, firings_max, "firings a step", "actor", actor.name);
  for (auto* ports : {&actor.in, &actor.out})
    for (auto& port : *ports) {
      index(port.reg, plan.registers.size(), 0, "register", "actor", actor.name);
      in_range(port.period, 1, firings_max, "as a port's period", "actor", actor.name);
    }
  for (auto& op : actor.ops) check_op(plan, op);
  for (int t : actor.tensors) index(t, plan.tensors.size(), 0, "tensor", "actor", actor.name);
  if (!actor.tensors.empty() && actor.tensors.size() != actor.names.size())
    broken(fmt::format("the actor {} has not one name a tensor", word_of(actor.name)));
  for (auto& move : actor.moves) {
    index(move.from, plan.tensors.size(), 0, "tensor", "actor", actor.name);
    index(move.to, plan.tensors.size(), 0, "tensor", "actor", actor.name);
  }
  if (actor.phase > Phase::optimizer) broken(fmt::format("the actor {} has no phase that exists", word_of(actor.name)));
}

}  // namespace

void verify_structure(const Plan& plan) {
  in_range(plan.micro_batches, 1, firings_max, "micro-batches", "job", plan.job);
  in_range(plan.batch_bound, 0, bytes_max, "rows a batch", "job", plan.job);
  for (auto& cls : plan.classes) check_class(cls);
  for (auto& tensor : plan.tensors) check_tensor(plan, tensor);
  for (auto& reg : plan.registers) check_register(plan, reg);
  for (auto& actor : plan.actors) check_actor(plan, actor);
}

}  // namespace sluice
