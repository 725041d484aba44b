// SPDX-License-Identifier: Apache-2.0
// What an actor does when it fires. One body an actor; made when the plan is lowered, so a firing allocates nothing
// on a synchronous device.
// Thread rule: called by the actor's stream only.
#pragma once
#include <functional>

#include "actors/windows.h"
#include "actors/world.h"

namespace sluice {

// One rank's machine: its device and the arenas of its classes.
struct Site {
  int rank = 0;
  std::unique_ptr<Device> device;
  std::map<int, std::byte*> arenas;  // by class

  ~Site() {
    for (auto& [cls, arena] : arenas) device->release(arena);
  }
};

// What a body is made from.
struct BodyContext {
  World& world;
  const FloorTables& tables;
  Site& site;
  Actor& actor;
  DeviceStream& stream;
  std::function<Register*(int reg, int rank)> find;           // the register of the plan on a rank
  const std::vector<std::shared_ptr<const Reader>>& sources;  // of the plan's sources, opened

  const Plan& plan() const { return world.plan; }
  const PlanClass& cls() const { return world.plan.classes[size_t(actor.plan->cls)]; }
  const Mesh& mesh() const { return cls().mesh; }
};

class Body {
 public:
  virtual ~Body() = default;
  // An event that the host must see done before run(); null or done: go on. Asked again after each.
  virtual EventPtr before(const Firing&) { return nullptr; }
  virtual void run(const Firing& firing) = 0;
  // An event that the host must see done before complete() and the end of the firing.
  virtual EventPtr after(const Firing&) { return nullptr; }
  virtual void complete(const Firing&) {}
  // What was running when run() threw: an op's name and place.
  struct At {
    std::string what;
    Place place;
  };
  virtual At at() const { return {}; }
};

// By the actor's kind; null: it does nothing but pass tokens on. Throws Error when the plan does not fit together.
std::unique_ptr<Body> make_body(const BodyContext& context);
std::unique_ptr<Body> make_compute(const BodyContext& context);
std::unique_ptr<Body> make_move(const BodyContext& context);
std::unique_ptr<Body> make_source(const BodyContext& context);
std::unique_ptr<Body> make_feed(const BodyContext& context);
std::unique_ptr<Body> make_sink(const BodyContext& context);

}  // namespace sluice
