// SPDX-License-Identifier: Apache-2.0
// Hand-built plans for tests and benches of the floor: a few ops and a builder that lays out memory.
// Thread rule: one thread.
#pragma once
#include <cstring>
#include <functional>

#include "actors/floor.h"

namespace sluice::testing_plans {

// Builds a plan of float32 tensors. Every register gets its own memory, one tensor at offset 0.
class PlanMaker {
 public:
  Plan plan;

  explicit PlanMaker(int64_t batch = 0, int micro_batches = 1) {
    plan.job = "test";
    plan.batch_bound = batch;
    plan.micro_batches = micro_batches;
  }

  // A class of `ranks` ranks on one axis, with `streams` streams.
  int cls(int ranks, int streams = 1, int first_rank = 0) {
    PlanClass cls;
    cls.name = "c" + std::to_string(plan.classes.size());
    cls.mesh = {cls.name, {{"x", ranks}}, first_rank};
    for (int s = 0; s < streams; ++s) {
      cls.streams.push_back({"s" + std::to_string(s), cls.arena_bytes, 1024});
      cls.arena_bytes += 1024;
    }
    plan.classes.push_back(cls);
    return int(plan.classes.size()) - 1;
  }

  LogicalType batch_type(int64_t width) const { return {DType::float32, {{plan.batch_bound, batch_sym, 1}, {width}}}; }
  static LogicalType fixed_type(std::vector<int64_t> dims) { return {DType::float32, fixed_shape(dims)}; }

  // A register with one tensor; they share their index when only this makes tensors.
  int reg(const std::string& name, int cls, const LogicalType& type, Sbp sbp = Sbp::broadcast(), int slots = 1) {
    auto& c = plan.classes[size_t(cls)];
    PlanTensor tensor{name, type, cls, {sbp}};
    tensor.bytes = 4;
    for (int64_t dim : local_bound(type.shape, tensor.sbp, c.mesh)) tensor.bytes *= dim;
    tensor.reg = int(plan.registers.size());
    PlanRegister reg{name, cls, slots, (std::max<int64_t>(tensor.bytes, 1) + 63) / 64 * 64};
    reg.offset = c.arena_bytes;
    reg.tensors = {int(plan.tensors.size())};
    c.arena_bytes += reg.bytes * slots;
    plan.tensors.push_back(tensor);
    plan.registers.push_back(reg);
    return int(plan.registers.size()) - 1;
  }
  int variable(const std::string& name, int cls, const LogicalType& type, Sbp sbp = Sbp::broadcast(), int slots = 1) {
    int r = reg(name, cls, type, sbp, slots);
    plan.registers[size_t(r)].variable = name;
    plan.registers[size_t(r)].initial = slots;
    return r;
  }
  int tensor(int reg) const { return plan.registers[size_t(reg)].tensors[0]; }

  PlanActor& actor(const std::string& name, const std::string& kind, int cls, std::vector<Port> in,
                   std::vector<Port> out, int stream = 0) {
    PlanActor actor;
    actor.name = name;
    actor.kind = kind;
    actor.cls = cls;
    actor.stream = stream;
    actor.key = int64_t(plan.actors.size());
    actor.in = std::move(in);
    actor.out = std::move(out);
    for (auto& port : actor.out) plan.registers[size_t(port.reg)].producer = int(plan.actors.size());
    plan.actors.push_back(actor);
    return plan.actors.back();
  }
  // A compute actor of one op that reads the in-ports' tensors and writes the out-ports'.
  PlanActor& op(const std::string& name, const std::string& op, int cls, std::vector<Port> in, std::vector<Port> out,
                int stream = 0) {
    PlanActor& made = actor(name, "compute", cls, in, out, stream);
    PlanOp plan_op;
    plan_op.op = op;
    plan_op.name = name;
    plan_op.place = {"model.py", 7};
    for (auto& port : made.in) plan_op.in.push_back(tensor(port.reg));
    for (auto& port : made.out) plan_op.out.push_back(tensor(port.reg));
    made.ops = {plan_op};
    return made;
  }
  PlanActor& move(const std::string& name, int cls, int from, int to, int stream = 0) {
    PlanActor& made = actor(name, "move", cls, {{from}}, {{to}}, stream);
    made.moves = {{"exchange", tensor(from), tensor(to)}};
    return made;
  }
  PlanActor& feed(const std::string& name, int cls, int reg, int stream = 0) {
    PlanActor& made = actor("feed " + name, "feed", cls, {}, {{reg}}, stream);
    made.names = {name};
    made.tensors = {tensor(reg)};
    return made;
  }
  PlanActor& sink(const std::string& name, int cls, int reg, int stream = 0) {
    PlanActor& made = actor("sink " + name, "sink", cls, {{reg}}, {}, stream);
    made.names = {name};
    made.tensors = {tensor(reg)};
    return made;
  }
};

inline HostArray array_of(std::vector<int64_t> dims, const std::vector<float>& values) {
  HostArray array{DType::float32, std::move(dims), std::vector<std::byte>(values.size() * sizeof(float))};
  if (!values.empty()) std::memcpy(array.data.data(), values.data(), array.data.size());
  return array;
}
inline std::vector<float> values_of(const HostArray& array) {
  std::vector<float> values(array.data.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), array.data.data(), array.data.size());
  return values;
}

}  // namespace sluice::testing_plans
