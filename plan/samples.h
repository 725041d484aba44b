// SPDX-License-Identifier: Apache-2.0
// Plans for tests: random ones whose structure is sound and whose meaning is none, with names as hostile as they come.
// Thread rule: pure functions.
#pragma once
#include <bit>
#include <cmath>
#include <random>

#include "plan/plan.h"

namespace sluice::samples {

using Random = std::mt19937_64;

inline int below(Random& random, size_t n) { return int(random() % n); }

inline std::string any_name(Random& random) {
  static constexpr std::string_view favourites = "\"\\n\n=,()[]{}#%@:*-> \t";
  std::string name(random() % 3 ? "x" : "");
  for (size_t n = random() % 6; n-- > 0;)
    name += random() % 2 ? favourites[random() % favourites.size()] : char(random() % 256);
  return name;
}

inline int64_t any_size(Random& random) { return int64_t(random() % 3 ? random() % 100 : random() >> 9); }

inline AttrValue any_value(Random& random) {
  switch (random() % 7) {
    case 0: return bool(random() % 2);
    case 1: return int64_t(random());
    case 2: {
      double v = std::bit_cast<double>(random());
      return std::isnan(v) ? -0.0 : v;
    }
    case 3: return any_name(random);
    case 4: return std::vector<int64_t>(random() % 4, int64_t(random()));
    case 5: return Shape(random() % 4, {12, batch_sym, 3});
    default: return DType(random() % dtype_names.size());
  }
}

inline Attrs any_attrs(Random& random) {
  Attrs attrs(random() % 3);
  for (auto& attr : attrs) attr = {any_name(random), any_value(random)};
  return attrs;
}

inline LogicalType any_type(Random& random) {
  LogicalType type{DType(random() % dtype_names.size()), {}};
  for (size_t n = random() % 4; n-- > 0;) {
    int sym = below(random, syms_max);
    int64_t granule = sym == fixed_sym ? 1 : 1 + below(random, 3);
    type.shape.push_back({granule * below(random, 9), sym, granule});
  }
  return type;
}

inline PlanClass any_class(Random& random) {
  PlanClass cls{.name = any_name(random), .mesh = {any_name(random), {}, below(random, 9)}, .pool = any_name(random)};
  for (size_t n = random() % 3; n-- > 0;) cls.mesh.axes.push_back({any_name(random), 1 + below(random, 4)});
  cls.streams.resize(1 + random() % 2);
  for (auto& stream : cls.streams) stream = {any_name(random), any_size(random), any_size(random)};
  cls.arena_bytes = any_size(random);
  cls.arena_bytes_lower_bound = any_size(random);
  cls.stage = below(random, 3);
  return cls;
}

inline PlanTensor any_tensor(Random& random, const Plan& plan, size_t registers) {
  PlanTensor tensor{.name = any_name(random), .type = any_type(random), .cls = below(random, plan.classes.size())};
  for (size_t a = plan.classes[size_t(tensor.cls)].mesh.axes.size(); a-- > 0;) {
    bool split = random() % 2 && !tensor.type.shape.empty();
    Sbp other{std::array{Sbp::B, Sbp::P, Sbp::Pmax, Sbp::Pmin}[random() % 4], -1};
    tensor.sbp.push_back(split ? Sbp::split(below(random, tensor.type.shape.size())) : other);
  }
  tensor.layout = random() % 2 ? "row" : random() % 2 ? "col" : any_name(random);
  tensor.reg = below(random, registers + 1) - 1;
  tensor.offset = any_size(random);
  tensor.bytes = any_size(random);
  return tensor;
}

inline PlanActor any_actor(Random& random, const Plan& plan) {
  auto tensor = [&] { return below(random, plan.tensors.size()); };
  PlanActor actor{.name = any_name(random), .kind = any_name(random), .cls = below(random, plan.classes.size())};
  actor.stream = below(random, plan.classes[size_t(actor.cls)].streams.size());
  actor.key = int64_t(random());
  actor.firings = 1 + below(random, 4);
  for (auto* ports : {&actor.in, &actor.out})
    for (size_t n = random() % 3; n-- > 0;)
      ports->push_back({below(random, plan.registers.size()), 1 + below(random, 3)});
  actor.ops.resize(random() % 3);
  for (auto& op : actor.ops) {
    op = {.op = any_name(random), .name = any_name(random), .attrs = any_attrs(random)};
    for (auto* operands : {&op.in, &op.out})
      for (size_t n = random() % 3; n-- > 0;) operands->push_back(tensor());
    op.workspace_offset = any_size(random);
    op.workspace_bytes = any_size(random);
    if (random() % 2) op.place = {any_name(random), below(random, 99)};
  }
  actor.moves.resize(random() % 2);
  for (auto& move : actor.moves) move = {any_name(random), tensor(), tensor()};
  actor.source = below(random, plan.sources.size() + 1) - 1;
  actor.names.resize(random() % 3);
  for (auto& name : actor.names) name = any_name(random);
  for (size_t i = 0; i < actor.names.size(); ++i) actor.tensors.push_back(int(random() % plan.tensors.size()));
  actor.phase = Phase(random() % 3);
  return actor;
}

inline Plan any_plan(Random& random) {
  Plan plan{.job = any_name(random), .seed = random(), .micro_batches = 1 + below(random, 5)};
  plan.batch_bound = any_size(random);
  plan.exact = random() % 2;
  plan.device = any_name(random);
  plan.classes.resize(1 + random() % 3);
  for (auto& cls : plan.classes) cls = any_class(random);
  plan.sources.resize(random() % 3);
  for (auto& source : plan.sources) source = {any_name(random), any_attrs(random), bool(random() % 2)};
  plan.registers.resize(1 + random() % 5);
  size_t actors = random() % 6;
  plan.tensors.resize(1 + random() % 9);
  for (auto& tensor : plan.tensors) tensor = any_tensor(random, plan, plan.registers.size());
  for (auto& reg : plan.registers) {
    reg = {.name = any_name(random), .cls = below(random, plan.classes.size()), .slots = 1 + below(random, 3)};
    reg.bytes = any_size(random) / 4;
    reg.offset = any_size(random);
    reg.initial = below(random, size_t(reg.slots) + 1);
    reg.producer = below(random, actors + 1) - 1;
    for (size_t n = random() % 3; n-- > 0;) reg.tensors.push_back(below(random, plan.tensors.size()));
    reg.variable = any_name(random);
  }
  for (size_t n = actors; n-- > 0;) plan.actors.push_back(any_actor(random, plan));
  plan.notes.resize(random() % 3);
  for (auto& note : plan.notes) note = {any_name(random), any_name(random)};
  return plan;
}

}  // namespace sluice::samples
