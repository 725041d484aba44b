// SPDX-License-Identifier: Apache-2.0
#include "actors/links.h"

#include <algorithm>
#include <set>

namespace sluice {
namespace {

class Links {
 public:
  Links(World& world, Lowered& lowered) : world_(world), plan_(world.plan), low_(lowered) {}

  // Wires are numbered over the ranks of all processes; each process opens the ends that it has.
  void run() {
    size_t local = 0;
    for (auto& plan : plan_.actors) {
      auto& mesh = plan_.classes[size_t(plan.cls)].mesh;
      for (int rank = mesh.first_rank; rank < mesh.first_rank + mesh.size(); ++rank) {
        auto edges = edges_of(plan, rank);
        if (world_.neighbours.here(rank)) {
          link_inputs(*low_.actors[local++], edges);
        } else {
          for (auto& edge : edges)
            if (world_.neighbours.here(edge.peer)) link_away(plan, rank, edge);
        }
      }
    }
  }

 private:
  PlacedType placed(const PlanTensor& tensor) const {
    return {tensor.type, &plan_.classes[size_t(tensor.cls)].mesh, tensor.sbp};
  }

  // An in-port of one rank that hears one peer.
  struct Edge {
    Port port;
    int peer = 0;
    uint32_t wire = 0;  // where the peer is another rank
  };

  // In the order of ports and peers, alike in every process.
  std::vector<Edge> edges_of(const PlanActor& actor, int rank) {
    std::vector<Edge> edges;
    std::vector<Port> ports = actor.in;
    for (auto& move : actor.moves) {  // constants have no ports
      int reg = plan_.tensors[size_t(move.from)].reg;
      auto same = [&](const Port& port) { return port.reg == reg; };
      if (reg >= 0 && is_constant(reg) && std::none_of(ports.begin(), ports.end(), same)) ports.push_back({reg, 1});
    }
    for (auto& port : ports)
      for (int peer : peers(actor, rank, port.reg)) edges.push_back({port, peer, peer == rank ? 0 : next_wire_++});
    return edges;
  }

  // The ranks whose register an in-port hears: my own; for a move's register, the peers of its hops.
  std::set<int> peers(const PlanActor& actor, int rank, int reg) const {
    std::set<int> ranks;
    bool moved = false;
    for (auto& move : actor.moves) {
      auto& from = plan_.tensors[size_t(move.from)];
      if (from.reg != reg) continue;
      moved = true;
      for (int peer : peers_of(placed(from), placed(plan_.tensors[size_t(move.to)]), rank)) ranks.insert(peer);
    }
    if (!moved) {
      auto& mesh = plan_.classes[size_t(plan_.registers[size_t(reg)].cls)].mesh;
      require(mesh.holds(rank), "actor '" + actor.name + "' reads a register of another class");
      ranks.insert(rank);
    }
    return ranks;
  }

  bool is_constant(int reg) const { return plan_.registers[size_t(reg)].producer < 0; }

  void link_inputs(Actor& actor, const std::vector<Edge>& edges) {
    std::vector<Edge> ports;
    for (auto& edge : edges) {
      if (!is_constant(edge.port.reg))
        ports.push_back(edge);
      else if (!world_.neighbours.here(edge.peer))
        link_constant(actor, edge);
    }
    // An actor that waits for nothing on this rank (its share of a P value is zero), or only for variables, would run
    // ahead of the client: a gate holds it back.
    bool free = std::all_of(ports.begin(), ports.end(),
                            [&](auto& edge) { return plan_.registers[size_t(edge.port.reg)].initial > 0; });
    if (actor.kind->gated || free) {
      actor.gated = true;
      actor.in.emplace_back();
      actor.in_ports.push_back({actor.firings, actor.firings, 0, unbounded_slots});
      low_.gated.push_back(&actor);
      world_.steps.takers = int64_t(low_.gated.size());
    }
    size_t links = actor.in.size();
    actor.in.resize(links + ports.size());  // at once: transport callbacks keep pointers to links
    for (auto& edge : ports) link(actor, uint32_t(links++), edge);
  }

  // Whether what crosses from one rank to another is packed, as the receiver does not see the sender's memory.
  bool packs(int from_rank, int to_rank) const {
    if (world_.neighbours.here(from_rank) && world_.neighbours.here(to_rank)) return false;
    return !world_.between(from_rank, to_rank).in_place() || world_.async || !world_.computes;
  }

  Packing packing(const PlanActor& actor, int rank, const Edge& edge) const {
    std::vector<PackedHop> hops;
    for (auto& move : actor.moves) {
      auto &from = plan_.tensors[size_t(move.from)], &to = plan_.tensors[size_t(move.to)];
      if (from.reg != edge.port.reg) continue;
      auto heard = peers_of(placed(from), placed(to), rank);
      if (!std::binary_search(heard.begin(), heard.end(), edge.peer)) continue;
      bool ragged = std::any_of(from.type.shape.begin(), from.type.shape.end(),
                                [](const Dim& dim) { return dim.sym != fixed_sym; });
      require(!ragged || edge.port.period == 1, "the move '" + actor.name + "' takes a micro-batch more than once");
      hops.push_back({placed(from), placed(to), from.offset, to.layout == "col"});
    }
    return Packing(std::move(hops), edge.peer, rank);
  }

  Wire wire_of(const PlanActor& actor, int rank, const Edge& edge) const {
    auto& reg = plan_.registers[size_t(edge.port.reg)];
    Wire wire{edge.wire, edge.peer, rank, uint32_t(reg.slots), size_t(reg.bytes)};
    if (packs(edge.peer, rank)) wire.bytes_max = packing(actor, rank, edge).bytes_max();
    return wire;
  }

  Register& produced(int reg, int rank) const {
    Register* found = low_.find(reg, rank);
    require(found && (found->producer || is_constant(reg)),
            "register '" + plan_.registers[size_t(reg)].name + "' has no producer on a rank");
    return *found;
  }

  void link(Actor& actor, uint32_t index, const Edge& edge) {
    InLink& in = actor.in[index];
    in.plan = &plan_.registers[size_t(edge.port.reg)];
    in.id = edge.port.reg;
    in.peer = edge.peer;
    auto slots = uint32_t(in.plan->slots), period = uint32_t(edge.port.period);
    actor.in_ports.push_back({period, period, 0, slots});
    if (edge.peer == actor.rank) {
      Register& reg = produced(edge.port.reg, edge.peer);
      in.reader = uint32_t(reg.taps.size());
      in.reg = &reg;
      actor.in_ports.back().tokens = uint32_t(reg.plan->initial);
      reg.taps.push_back({&actor, index});
      return;
    }
    in.wire = edge.wire;
    in.wired = true;
    in.packed = packs(edge.peer, actor.rank);
    in.transport = &world_.between(edge.peer, actor.rank);
    in.arrivals.resize(slots);
    if (world_.neighbours.here(edge.peer)) link_away(*actor.plan, actor.rank, edge);
    open_receiver(in, actor, index, wire_of(*actor.plan, actor.rank, edge));
  }

  // The sending end, of an edge to another rank.
  void link_away(const PlanActor& actor, int rank, const Edge& edge) {
    Register& reg = produced(edge.port.reg, edge.peer);
    Tap tap{nullptr, 0, true, edge.wire, &world_.between(edge.peer, rank)};
    if (packs(edge.peer, rank)) {
      uint32_t micros = 1;
      if (reg.producer) micros = reg.producer->firings / uint32_t(reg.producer->plan->out[reg.out].period);
      low_.outlets.push_back(std::make_unique<Outlet>(packing(actor, rank, edge), *tap.transport, edge.wire,
                                                      uint32_t(reg.plan->slots), micros,
                                                      *low_.sites[size_t(edge.peer)]->device));
      tap.outlet = low_.outlets.back().get();
    }
    if (!reg.producer && world_.neighbours.here(rank)) return;  // read where it lies
    tap.transport->open_sender(wire_of(actor, rank, edge), [&reg](uint32_t slot) {
      if (reg.producer) reg.producer->stream->post({Message::credit, reg.out, slot, reg.producer});
    });
    if (reg.producer)
      reg.taps.push_back(tap);
    else
      low_.constants.push_back({&reg, tap});
  }

  void link_constant(Actor& actor, const Edge& edge) {
    actor.constants.push_back(std::make_unique<ConstantLink>());
    ConstantLink& link = *actor.constants.back();
    link.id = edge.port.reg;
    link.peer = edge.peer;
    link.packed = packs(edge.peer, actor.rank);
    world_.between(edge.peer, actor.rank)
        .open_receiver(wire_of(*actor.plan, actor.rank, edge),
                       [&link](const Arrival& arrival) { link.data.store(arrival.data, std::memory_order_release); });
  }

  void open_receiver(InLink& in, Actor& actor, uint32_t index, const Wire& wire) {
    in.transport->open_receiver(wire, [&in, &actor, index](const Arrival& arrival) {
      if (arrival.refresh) return;  // the slot is in the ring already
      in.arrivals[in.tail] = arrival;
      in.tail = in.tail + 1 == in.arrivals.size() ? 0 : in.tail + 1;
      actor.stream->post({Message::input, index, 1, &actor});
    });
  }

  World& world_;
  const Plan& plan_;
  Lowered& low_;
  uint32_t next_wire_ = 1;
};

}  // namespace

void require(bool holds, const std::string& why) {
  if (!holds) throw Error(Code::value, "the plan does not fit together: " + why);
}

void link_all(World& world, Lowered& lowered) { Links(world, lowered).run(); }

}  // namespace sluice
