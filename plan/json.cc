// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "plan/show.h"
#include "plan/summary.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> phases{"forward", "backward", "optimizer"};

class Writer {
 public:
  explicit Writer(const Plan& plan) : plan_(plan) {}

  Json run() const {
    Json json{{"job", plan_.job},
              {"hash", fmt::format("{:016x}", hash_of(plan_))},
              {"device", plan_.device},
              {"ranks", plan_.ranks()},
              {"seed", plan_.seed},
              {"batch", plan_.batch_bound},
              {"micro_batches", plan_.micro_batches},
              {"exact", plan_.exact}};
    json["classes"] = classes();
    json["actors"] = list(plan_.actors, [&](auto& actor) { return this->actor(actor); });
    json["moves"] = moves();
    json["registers"] = list(plan_.registers, [&](auto& reg) { return this->reg(reg); });
    json["notes"] = list(plan_.notes, [](auto& note) { return Json{{"key", note.first}, {"text", note.second}}; });
    return json;
  }

 private:
  template <class Items, class One>
  static Json list(const Items& items, One one) {
    Json array = Json::array();
    for (auto& item : items) array.push_back(one(item));
    return array;
  }

  const std::string& class_name(int cls) const { return plan_.classes[size_t(cls)].name; }
  const std::string& tensor_name(int t) const { return plan_.tensors[size_t(t)].name; }

  Json classes() const {
    Json array = Json::array();
    for (size_t c = 0; c < plan_.classes.size(); ++c) {
      auto& cls = plan_.classes[c];
      Json actors = Json::object();
      for (auto& [kind, count] : actors_by_kind(plan_, int(c))) actors[kind] = count;
      array.push_back({{"name", cls.name},
                       {"pool", cls.pool},
                       {"stage", cls.stage},
                       {"first_rank", cls.mesh.first_rank},
                       {"ranks", cls.mesh.size()},
                       {"axes", list(cls.mesh.axes,
                                     [](auto& a) {
                                       return Json{{"name", a.name}, {"size", a.size}};
                                     })},
                       {"actors", actors},
                       {"arena_bytes", cls.arena_bytes},
                       {"arena_bytes_lower_bound", cls.arena_bytes_lower_bound}});
    }
    return array;
  }

  Json tensor(int t) const {
    auto& tensor = plan_.tensors[size_t(t)];
    return {{"name", tensor.name},
            {"type", text_of(tensor.type)},
            {"sbp", text_of(tensor.sbp)},
            {"class", class_name(tensor.cls)}};
  }

  Json actor(const PlanActor& actor) const {
    auto ports = [&](const Port& port) {
      return Json{{"register", plan_.registers[size_t(port.reg)].name}, {"period", port.period}};
    };
    return {{"name", actor.name},
            {"kind", actor.kind},
            {"class", class_name(actor.cls)},
            {"stream", plan_.classes[size_t(actor.cls)].streams[size_t(actor.stream)].name},
            {"key", actor.key},
            {"firings", actor.firings},
            {"phase", phases[size_t(actor.phase)]},
            {"in", list(actor.in, ports)},
            {"out", list(actor.out, ports)},
            {"ops", list(actor.ops, [&](auto& op) { return this->op(op); })}};
  }

  Json op(const PlanOp& op) const {
    auto name = [&](int t) { return Json(tensor_name(t)); };
    return {{"op", op.op},
            {"name", op.name},
            {"in", list(op.in, name)},
            {"out", list(op.out, name)},
            {"line", op.place.text()}};
  }

  Json moves() const {
    return list(moves_of(plan_), [&](const MoveSummary& move) {
      return Json{{"actor", move.actor->name},
                  {"move", move.move->move},
                  {"from", tensor(move.move->from)},
                  {"to", tensor(move.move->to)},
                  {"firings", move.actor->firings},
                  {"bytes_per_step", move.step.bytes},
                  {"messages_per_step", move.step.messages}};
    });
  }

  Json reg(const PlanRegister& reg) const {
    return {{"name", reg.name},         {"class", class_name(reg.cls)},
            {"slots", reg.slots},       {"slot_bytes", reg.bytes},
            {"variable", reg.variable}, {"tensors", list(reg.tensors, [&](int t) { return tensor(t); })}};
  }

  const Plan& plan_;
};

}  // namespace

std::string plan_json(const Plan& plan) {
  // A name that is no UTF-8 is shown with replacement characters: the text form has its bytes.
  return Writer(plan).run().dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice
