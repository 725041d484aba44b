// SPDX-License-Identifier: Apache-2.0
// The plan as bytes (plan.capnp).
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "graph/wire.h"
#include "plan/plan.capnp.h"
#include "plan/plan.h"
#include "plan/verify.h"

namespace sluice {
namespace plan_wire {

using wire::get;
using wire::get_all;
using wire::get_numbers;
using wire::put;
using wire::put_all;
using wire::put_numbers;
using wire::text;

static constexpr std::string_view magic = "SLUICEP1";

// Static, not in an unnamed namespace: lists find put and get by the argument's namespace.
static void put(Placement::Builder to, Sbp from) {
  switch (from.kind) {
    case Sbp::S: return to.setSplit(uint8_t(from.dim));
    case Sbp::B: return to.setBroadcast();
    case Sbp::P: return to.setPartialSum();
    case Sbp::Pmax: return to.setPartialMax();
    case Sbp::Pmin: return to.setPartialMin();
  }
}
static Sbp get(Placement::Reader from) {
  switch (from.which()) {
    case Placement::SPLIT:
      if (from.getSplit() >= rank_max) throw Error(Code::io, "it splits a dim that no shape has");
      return Sbp::split(from.getSplit());
    case Placement::BROADCAST: return Sbp::broadcast();
    case Placement::PARTIAL_SUM: return Sbp::partial();
    case Placement::PARTIAL_MAX: return {Sbp::Pmax, -1};
    case Placement::PARTIAL_MIN: return {Sbp::Pmin, -1};
  }
  throw Error(Code::io, "it holds a placement that this version lacks");
}

static void put(Axis::Builder to, const sluice::Axis& from) {
  to.setName(text(from.name));
  to.setSize(from.size);
}
static sluice::Axis get(Axis::Reader from) { return {text(from.getName()), from.getSize()}; }

static void put(Stream::Builder to, const PlanStream& from) {
  to.setName(text(from.name));
  to.setScratchOffset(from.scratch_offset);
  to.setScratchBytes(from.scratch_bytes);
}
static PlanStream get(Stream::Reader from) {
  return {text(from.getName()), from.getScratchOffset(), from.getScratchBytes()};
}

static void put(Mesh::Builder to, const sluice::Mesh& from) {
  to.setName(text(from.name));
  put_all(to.initAxes(unsigned(from.axes.size())), from.axes);
  to.setFirstRank(from.first_rank);
}
static sluice::Mesh get(Mesh::Reader from) {
  return {text(from.getName()), get_all(from.getAxes()), from.getFirstRank()};
}

static void put(Class::Builder to, const PlanClass& from) {
  to.setName(text(from.name));
  put(to.initMesh(), from.mesh);
  to.setPool(text(from.pool));
  put_all(to.initStreams(unsigned(from.streams.size())), from.streams);
  to.setArenaBytes(from.arena_bytes);
  to.setArenaBytesLowerBound(from.arena_bytes_lower_bound);
  to.setStage(from.stage);
}
static PlanClass get(Class::Reader from) {
  PlanClass cls{.name = text(from.getName()), .mesh = get(from.getMesh()), .pool = text(from.getPool())};
  cls.streams = get_all(from.getStreams());
  cls.arena_bytes = from.getArenaBytes();
  cls.arena_bytes_lower_bound = from.getArenaBytesLowerBound();
  cls.stage = from.getStage();
  return cls;
}

static void put(Tensor::Builder to, const PlanTensor& from) {
  to.setName(text(from.name));
  put(to.initType(), from.type);
  to.setCls(from.cls);
  put_all(to.initPlacement(unsigned(from.sbp.size())), from.sbp);
  to.setLayout(text(from.layout));
  to.setRegister(from.reg);
  to.setOffset(from.offset);
  to.setBytes(from.bytes);
}
static PlanTensor get(Tensor::Reader from) {
  PlanTensor tensor{.name = text(from.getName()), .type = get(from.getType()), .cls = from.getCls()};
  tensor.sbp = get_all(from.getPlacement());
  tensor.layout = text(from.getLayout());
  tensor.reg = from.getRegister();
  tensor.offset = from.getOffset();
  tensor.bytes = from.getBytes();
  return tensor;
}

static void put(Register::Builder to, const PlanRegister& from) {
  to.setName(text(from.name));
  to.setCls(from.cls);
  to.setSlots(from.slots);
  to.setBytes(from.bytes);
  to.setOffset(from.offset);
  to.setInitial(from.initial);
  to.setProducer(from.producer);
  put_numbers<int32_t>(to.initTensors(unsigned(from.tensors.size())), from.tensors);
  to.setVariable(text(from.variable));
}
static PlanRegister get(Register::Reader from) {
  PlanRegister reg{.name = text(from.getName()), .cls = from.getCls(), .slots = from.getSlots()};
  reg.bytes = from.getBytes();
  reg.offset = from.getOffset();
  reg.initial = from.getInitial();
  reg.producer = from.getProducer();
  reg.tensors = get_numbers(from.getTensors());
  reg.variable = text(from.getVariable());
  return reg;
}

static void put(Port::Builder to, const sluice::Port& from) {
  to.setRegister(from.reg);
  to.setPeriod(from.period);
}
static sluice::Port get(Port::Reader from) { return {from.getRegister(), from.getPeriod()}; }

static void put(Op::Builder to, const PlanOp& from) {
  to.setOp(text(from.op));
  to.setName(text(from.name));
  put_all(to.initAttrs(unsigned(from.attrs.size())), from.attrs);
  put_numbers<int32_t>(to.initInputs(unsigned(from.in.size())), from.in);
  put_numbers<int32_t>(to.initOutputs(unsigned(from.out.size())), from.out);
  to.setWorkspaceOffset(from.workspace_offset);
  to.setWorkspaceBytes(from.workspace_bytes);
  put(to.initPlace(), from.place);
}
static PlanOp get(Op::Reader from) {
  PlanOp op{.op = text(from.getOp()), .name = text(from.getName()), .attrs = get_all(from.getAttrs())};
  op.in = get_numbers(from.getInputs());
  op.out = get_numbers(from.getOutputs());
  op.workspace_offset = from.getWorkspaceOffset();
  op.workspace_bytes = from.getWorkspaceBytes();
  op.place = get(from.getPlace());
  return op;
}

static void put(Move::Builder to, const PlanMove& from) {
  to.setMove(text(from.move));
  to.setFrom(from.from);
  to.setTo(from.to);
}
static PlanMove get(Move::Reader from) { return {text(from.getMove()), from.getFrom(), from.getTo()}; }

static void put(Actor::Builder to, const PlanActor& from) {
  to.setName(text(from.name));
  to.setKind(text(from.kind));
  to.setCls(from.cls);
  to.setStream(from.stream);
  to.setKey(from.key);
  to.setFirings(from.firings);
  put_all(to.initInputs(unsigned(from.in.size())), from.in);
  put_all(to.initOutputs(unsigned(from.out.size())), from.out);
  put_all(to.initOps(unsigned(from.ops.size())), from.ops);
  put_all(to.initMoves(unsigned(from.moves.size())), from.moves);
  to.setSource(from.source);
  auto names = to.initNames(unsigned(from.names.size()));
  for (unsigned i = 0; i < names.size(); ++i) names.set(i, text(from.names[i]));
  to.setPhase(wire::Phase(from.phase));
  put_numbers<int32_t>(to.initTensors(unsigned(from.tensors.size())), from.tensors);
}
static PlanActor get(Actor::Reader from) {
  PlanActor actor{.name = text(from.getName()), .kind = text(from.getKind()), .cls = from.getCls()};
  actor.stream = from.getStream();
  actor.key = from.getKey();
  actor.firings = from.getFirings();
  actor.in = get_all(from.getInputs());
  actor.out = get_all(from.getOutputs());
  actor.ops = get_all(from.getOps());
  actor.moves = get_all(from.getMoves());
  actor.source = from.getSource();
  actor.names = get_all(from.getNames(), [](capnp::Text::Reader name) { return text(name); });
  actor.phase = get(from.getPhase());
  actor.tensors = get_numbers(from.getTensors());
  return actor;
}

static void put(Note::Builder to, const std::pair<std::string, std::string>& from) {
  to.setKey(text(from.first));
  to.setText(text(from.second));
}
static std::pair<std::string, std::string> get(Note::Reader from) {
  return {text(from.getKey()), text(from.getText())};
}

static void put(Plan::Builder to, const sluice::Plan& from) {
  to.setJob(text(from.job));
  to.setSeed(from.seed);
  to.setMicroBatches(from.micro_batches);
  to.setBatchBound(from.batch_bound);
  to.setExact(from.exact);
  to.setDevice(text(from.device));
  put_all(to.initClasses(unsigned(from.classes.size())), from.classes);
  put_all(to.initTensors(unsigned(from.tensors.size())), from.tensors);
  put_all(to.initRegisters(unsigned(from.registers.size())), from.registers);
  put_all(to.initActors(unsigned(from.actors.size())), from.actors);
  put_all(to.initSources(unsigned(from.sources.size())), from.sources);
  put_all(to.initNotes(unsigned(from.notes.size())), from.notes);
}
static sluice::Plan get(Plan::Reader from) {
  sluice::Plan plan{.job = text(from.getJob()), .seed = from.getSeed(), .micro_batches = from.getMicroBatches()};
  plan.batch_bound = from.getBatchBound();
  plan.exact = from.getExact();
  plan.device = text(from.getDevice());
  plan.classes = get_all(from.getClasses());
  plan.tensors = get_all(from.getTensors());
  plan.registers = get_all(from.getRegisters());
  plan.actors = get_all(from.getActors());
  plan.sources = get_all(from.getSources());
  plan.notes = get_all(from.getNotes());
  return plan;
}

}  // namespace plan_wire

std::vector<std::byte> encode(const Plan& plan) {
  capnp::MallocMessageBuilder message;
  plan_wire::put(message.initRoot<plan_wire::Plan>(), plan);
  return wire::seal<plan_wire::Plan>(plan_wire::magic, message);
}

Plan decode(std::span<const std::byte> bytes) {
  Plan plan;
  wire::open(plan_wire::magic, "plan", bytes, [&](capnp::MessageReader& reader) {
    plan = plan_wire::get(reader.getRoot<plan_wire::Plan>());
    verify_structure(plan);
  });
  return plan;
}

uint64_t hash_of(const Plan& plan) {
  auto bytes = encode(plan);
  return XXH64(bytes.data(), bytes.size(), 0);
}

}  // namespace sluice
