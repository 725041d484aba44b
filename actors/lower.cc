// SPDX-License-Identifier: Apache-2.0
#include "actors/lower.h"

#include <fmt/format.h>

#include <algorithm>

#include "actors/links.h"

namespace sluice {
namespace {

void require_index(int index, size_t size, const char* what, const std::string& of) {
  require(index >= 0 && size_t(index) < size, fmt::format("{} names {} {}", of, what, index));
}

class Lowering {
 public:
  Lowering(World& world, const FloorTables& tables) : world_(world), plan_(world.plan), tables_(tables) {}

  std::unique_ptr<Lowered> run() {
    validate();
    open_sources();
    make_sites();
    make_registers();
    make_streams();
    make_actors();
    link_all(world_, *low_);
    for (auto& actor : low_->actors) settle_credits(*actor);
    for (auto& actor : low_->actors) choose_carrier(*actor);
    make_bodies();
    for (auto& stream : low_->streams) {
      std::stable_sort(stream->actors.begin(), stream->actors.end(), [](const Actor* a, const Actor* b) {
        return std::pair(a->plan->key, a->id) < std::pair(b->plan->key, b->id);
      });
      stream->seal();
    }
    return std::move(low_);
  }

 private:
  // Indices only: what they mean together is the verifier's.
  void validate() const {
    for (auto& tensor : plan_.tensors) {
      require_index(tensor.cls, plan_.classes.size(), "class", "tensor '" + tensor.name + "'");
      if (tensor.reg != -1)
        require_index(tensor.reg, plan_.registers.size(), "register", "tensor '" + tensor.name + "'");
      require(tensor.sbp.size() == plan_.classes[size_t(tensor.cls)].mesh.axes.size(),
              "tensor '" + tensor.name + "' has not one SBP per mesh axis");
    }
    for (auto& reg : plan_.registers) {
      require_index(reg.cls, plan_.classes.size(), "class", "register '" + reg.name + "'");
      require(reg.slots >= 1 && reg.initial >= 0 && reg.initial <= reg.slots && reg.bytes >= 0 && reg.offset >= 0,
              "register '" + reg.name + "' has impossible slots or sizes");
      for (int tensor : reg.tensors)
        require_index(tensor, plan_.tensors.size(), "tensor", "register '" + reg.name + "'");
    }
    for (auto& actor : plan_.actors) validate(actor);
  }

  void validate(const PlanActor& actor) const {
    std::string of = "actor '" + actor.name + "'";
    require_index(actor.cls, plan_.classes.size(), "class", of);
    require_index(actor.stream, plan_.classes[size_t(actor.cls)].streams.size(), "stream", of);
    require(actor.firings >= 1, of + " never fires");
    for (auto* ports : {&actor.in, &actor.out})
      for (auto& port : *ports) {
        require_index(port.reg, plan_.registers.size(), "register", of);
        require(port.period >= 1 && actor.firings % port.period == 0,
                of + " has a period that does not divide its firings");
      }
    for (auto& port : actor.out)
      require(plan_.actors.data() + plan_.registers[size_t(port.reg)].producer == &actor,
              of + " writes register '" + plan_.registers[size_t(port.reg)].name + "', which is another's");
    for (auto& op : actor.ops)
      for (auto* tensors : {&op.in, &op.out})
        for (int tensor : *tensors) require_index(tensor, plan_.tensors.size(), "tensor", of);
    require(actor.tensors.size() == actor.names.size(), of + " has not one name a tensor");
    for (int tensor : actor.tensors) require_index(tensor, plan_.tensors.size(), "tensor", of);
    for (auto& move : actor.moves)
      for (int tensor : {move.from, move.to}) require_index(tensor, plan_.tensors.size(), "tensor", of);
  }

  void open_sources() {
    for (auto& source : plan_.sources) {
      const ReaderDef* def = nullptr;
      for (auto* candidate : tables_.readers)
        if (candidate->name == source.reader) def = candidate;
      if (!def) throw Error(Code::not_found, "there is no data reader '" + source.reader + "'");
      low_->sources.push_back(def->open(source.attrs));
      int64_t rows = low_->sources.back()->rows();
      if (rows == 0) throw Error(Code::value, "the data source '" + source.reader + "' has no rows");
      if (world_.steps.rows && world_.steps.rows != rows)
        throw Error(Code::value,
                    fmt::format("two data sources have {} and {} rows: a batch takes the same rows of both",
                                world_.steps.rows, rows));
      world_.steps.rows = rows;
      require(plan_.batch_bound > 0, "it reads a data source but has no batch");
    }
  }

  void make_sites() {
    const DeviceDef* def = nullptr;
    for (auto* candidate : tables_.devices)
      if (candidate->name == plan_.device) def = candidate;
    if (!def) throw Error(Code::not_found, "there is no device '" + plan_.device + "'");
    low_->sites.resize(size_t(plan_.ranks()));
    HostMemory* memory = shared_memory();
    int ordinal = 0;  // the machine's devices are dealt to its ranks in turn
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      if (!world_.neighbours.here(rank)) continue;
      auto site = std::make_unique<Site>();
      site->rank = rank;
      DeviceOptions options;
      options.threads = world_.options.threads;
      options.seed = world_.options.delay_seed + uint64_t(rank);
      options.memory = memory;
      options.ordinal = ordinal++;
      site->device = def->make(options);
      for (size_t c = 0; c < plan_.classes.size(); ++c)
        if (plan_.classes[c].mesh.holds(rank))
          site->arenas[int(c)] = static_cast<std::byte*>(site->device->allocate(size_t(plan_.classes[c].arena_bytes)));
      world_.async = site->device->async();
      world_.computes = site->device->computes();
      check_reach(*site);
      low_->sites[size_t(rank)] = std::move(site);
    }
  }

  // Ranks of one process read each other's slots where they lie.
  void check_reach(const Site& site) const {
    for (auto& other : low_->sites)
      if (other && (!site.device->reaches(*other->device) || !other->device->reaches(*site.device)))
        throw Error(
            Code::failed,
            fmt::format("the devices of ranks {} and {} do not reach each other's memory", other->rank, site.rank), {},
            "run one process for each device: sluice run -n");
  }

  HostMemory* shared_memory() const {
    for (auto* transport : world_.polled)
      if (transport->in_place() && transport->memory()) return transport->memory();
    return nullptr;
  }

  // The ranks of a class that are here.
  template <class F>
  void for_ranks(int cls, F&& f) {
    auto& mesh = plan_.classes[size_t(cls)].mesh;
    for (int rank = mesh.first_rank; rank < mesh.first_rank + mesh.size(); ++rank)
      if (world_.neighbours.here(rank)) f(rank);
  }

  void make_registers() {
    for (size_t r = 0; r < plan_.registers.size(); ++r) {
      auto& plan = plan_.registers[r];
      auto& cls = plan_.classes[size_t(plan.cls)];
      require(plan.offset + plan.bytes * plan.slots <= cls.arena_bytes,
              "register '" + plan.name + "' lies outside its arena");
      for_ranks(plan.cls, [&](int rank) {
        auto reg = std::make_unique<Register>();
        reg->plan = &plan;
        reg->bytes = plan.bytes;
        reg->id = int(r);
        reg->rank = rank;
        reg->memory = low_->sites[size_t(rank)]->arenas[plan.cls] + plan.offset;
        reg->headers.resize(size_t(plan.slots));
        for (int s = 0; s < plan.slots; ++s) reg->headers[size_t(s)].sequence = s - plan.slots;
        reg->filled.resize(size_t(plan.slots));
        low_->registers[{int(r), rank}] = std::move(reg);
      });
    }
  }

  void make_streams() {
    for (size_t c = 0; c < plan_.classes.size(); ++c)
      for_ranks(int(c), [&](int rank) {
        auto& cls = plan_.classes[c];
        for (size_t s = 0; s < cls.streams.size(); ++s) {
          auto stream = std::make_unique<Stream>(world_, rank, cls.name + "." + cls.streams[s].name);
          stream->device = low_->sites[size_t(rank)]->device->stream();
          streams_[{int(c), rank, int(s)}] = stream.get();
          low_->streams.push_back(std::move(stream));
        }
      });
  }

  void make_actors() {
    for (auto& plan : plan_.actors) {
      auto& kind = kind_of(tables_.kinds, plan.kind);
      for_ranks(plan.cls, [&](int rank) {
        auto actor = std::make_unique<Actor>();
        actor->plan = &plan;
        actor->kind = &kind;
        actor->id = int(low_->actors.size());
        actor->rank = rank;
        actor->firings = uint32_t(plan.firings);
        actor->stream = streams_[{plan.cls, rank, plan.stream}];
        actor->stream->actors.push_back(actor.get());
        for (auto& port : plan.out) {
          Register* reg = low_->find(port.reg, rank);
          require(reg, "actor '" + plan.name + "' writes a register of another class");
          reg->producer = actor.get();
          reg->out = uint32_t(actor->out.size());
          actor->out.push_back(reg);
        }
        low_->actors.push_back(std::move(actor));
      });
    }
  }

  // Credits follow from slots, initial tokens and the readers found.
  void settle_credits(Actor& actor) {
    for (size_t o = 0; o < actor.out.size(); ++o) {
      Register& reg = *actor.out[o];
      auto slots = uint32_t(reg.plan->slots), readers = uint32_t(reg.taps.size());
      reg.state = RegisterState(slots, readers, uint32_t(reg.plan->initial));
      reg.full_max = reg.state.full_max();
      if (world_.async) reg.drained.resize(size_t(slots) * readers);
      actor.out_ports.push_back({uint32_t(actor.plan->out[o].period), 0, reg.state.credits(), slots});
    }
    actor.state.in = actor.in_ports;
    actor.state.out = actor.out_ports;
  }

  // The fastest in-port whose tokens come from this step's sources and not from a variable.
  void choose_carrier(Actor& actor) const {
    if (actor.gated) return;
    for (size_t i = 0; i < actor.in.size(); ++i) {
      auto& link = actor.in[i];
      if (!link.plan || link.plan->initial > 0) continue;
      if (actor.carrier < 0 || actor.in_ports[i].period < actor.in_ports[size_t(actor.carrier)].period)
        actor.carrier = int(i);
    }
    require(actor.carrier >= 0, "actor '" + actor.plan->name + "' has no step to belong to");
  }

  void make_bodies() {
    for (auto& actor : low_->actors) {
      world_.results.parts_a_step += actor->plan->kind == "sink" ? actor->firings : 0;
      actor->body = make_body({world_, tables_, *low_->sites[size_t(actor->rank)], *actor, *actor->stream->device,
                               [this](int reg, int rank) { return low_->find(reg, rank); }, low_->sources});
    }
  }

  World& world_;
  const Plan& plan_;
  const FloorTables& tables_;
  std::unique_ptr<Lowered> low_ = std::make_unique<Lowered>();
  std::map<std::tuple<int, int, int>, Stream*> streams_;
};

}  // namespace

// Device streams end before what they use: what is enqueued still runs.
Lowered::~Lowered() {
  for (auto& stream : streams) stream->device.reset();
  outlets.clear();
}

std::unique_ptr<Lowered> lower(World& world, const FloorTables& tables) { return Lowering(world, tables).run(); }

}  // namespace sluice
