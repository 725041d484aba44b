// SPDX-License-Identifier: Apache-2.0
// A move actor's body: for each hop, the pieces of its peers' slots are copied or added into its own, in the order of
// peers. Programs depend on the window only.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "actors/body.h"
#include "comm/packing.h"

namespace sluice {
namespace {

struct Step {
  Piece piece;
  int source = -1;     // index among the sources of its hop
  int64_t offset = 0;  // of the tensor in the slot, or of the piece among the pieces
};

struct Hop {
  std::vector<Step> steps;
  bool zero = false;
  size_t bytes = 0;  // of the destination
};

struct Program {
  std::vector<Hop> hops;
  int64_t bytes_moved = 0;
  std::vector<size_t> message_bytes;  // of each inbound
};

class Move final : public Body {
 public:
  explicit Move(const BodyContext& context)
      : world_(context.world),
        actor_(context.actor),
        stream_(context.stream),
        device_(*context.site.device),
        windows_(context.actor.firings) {
    for (auto& plan : actor_.plan->moves) add(context, plan);
    for (auto& link : inbound_) {
      link.packing = std::make_unique<Packing>(link.hops, link.peer, actor_.rank);
      if (world_.async)
        link.landing = static_cast<std::byte*>(device_.allocate(std::max<size_t>(64, link.packing->bytes_max())));
    }
  }
  ~Move() override {
    for (auto& link : inbound_)
      if (link.landing) device_.release(link.landing);
  }

  void run(const Firing& firing) override {
    Program& program = windows_.get(firing, [&](Program& fresh) { build(fresh, firing); });
    world_.bytes_moved.fetch_add(program.bytes_moved, std::memory_order_relaxed);
    for (size_t i = 0; i < inbound_.size(); ++i) receive(inbound_[i], program.message_bytes[i]);
    for (size_t h = 0; h < ends_.size(); ++h)
      if (world_.async)
        launch(program.hops[h], ends_[h]);
      else
        run_hop(program.hops[h], ends_[h]);
  }

 private:
  // Where a peer's part comes from: memory that never moves, a constant of another process, or an in-port.
  struct Source {
    int peer = 0, base = -1;
    const std::byte* fixed = nullptr;
    const ConstantLink* constant = nullptr;
    int inbound = -1;  // it arrives as packed pieces
    size_t hop = 0;    // among that packing's hops
  };
  // What of a hop does not depend on the window.
  struct Ends {
    PlacedType from, to;
    const PlanTensor *from_tensor = nullptr, *to_tensor = nullptr;
    int out = -1;  // out-port
    std::vector<Source> sources;
  };
  // Packed pieces of one register of one peer, for all hops that read it.
  struct Inbound {
    int reg = -1, peer = -1, base = -1;
    const ConstantLink* constant = nullptr;
    std::vector<PackedHop> hops;
    std::unique_ptr<Packing> packing;
    std::byte* landing = nullptr;  // device memory, on an asynchronous device
  };

  void add(const BodyContext& context, const PlanMove& plan) {
    Ends ends;
    auto& tensors = world_.plan.tensors;
    ends.from_tensor = &tensors[size_t(plan.from)];
    ends.to_tensor = &tensors[size_t(plan.to)];
    ends.from = {ends.from_tensor->type, &world_.plan.classes[size_t(ends.from_tensor->cls)].mesh,
                 ends.from_tensor->sbp};
    ends.to = {ends.to_tensor->type, &context.mesh(), ends.to_tensor->sbp};
    std::string of = "the move of '" + ends.from_tensor->name + "' to '" + ends.to_tensor->name + "'";
    if (ends.from_tensor->layout != ends.to_tensor->layout) throw Error(Code::value, of + " changes the layout");
    if (ends.from_tensor->reg < 0) throw Error(Code::value, of + " reads a scratch tensor");
    for (size_t o = 0; o < actor_.out.size(); ++o)
      if (actor_.out[o]->id == ends.to_tensor->reg) ends.out = int(o);
    if (ends.out < 0) throw Error(Code::value, of + " has no out-port for its result");
    for (int peer : peers_of(ends.from, ends.to, actor_.rank)) {
      Source source = source_of(context, ends, peer);
      if (!source.fixed && !source.constant && source.base < 0)
        throw Error(Code::value, of + fmt::format(" has no in-port for rank {}", peer));
      ends.sources.push_back(source);
    }
    ends_.push_back(std::move(ends));
  }

  Source source_of(const BodyContext& context, const Ends& ends, int peer) {
    int reg = ends.from_tensor->reg;
    Source source{peer};
    Register* local = context.find(reg, peer);
    if (local && local->plan->producer < 0) source.fixed = local->memory;
    bool packed = false;
    for (auto& constant : actor_.constants)
      if (constant->id == reg && constant->peer == peer) source.constant = constant.get(), packed = constant->packed;
    for (size_t i = 0; i < actor_.in.size() && !source.fixed && !source.constant; ++i)
      if (actor_.in[i].id == reg && actor_.in[i].peer == peer) source.base = int(i), packed = actor_.in[i].packed;
    if (packed) {
      source.inbound = inbound_of(reg, source);
      auto& hops = inbound_[size_t(source.inbound)].hops;
      source.hop = hops.size();
      hops.push_back({ends.from, ends.to, ends.from_tensor->offset, ends.to_tensor->layout == "col"});
    }
    return source;
  }

  int inbound_of(int reg, const Source& source) {
    for (size_t i = 0; i < inbound_.size(); ++i)
      if (inbound_[i].reg == reg && inbound_[i].peer == source.peer) return int(i);
    inbound_.push_back({reg, source.peer, source.base, source.constant});
    return int(inbound_.size()) - 1;
  }

  void build(Program& program, const Firing& firing) const {
    Window window = window_at(firing, firing.micro, actor_.firings);
    std::vector<std::vector<PackedPiece>> packed;
    for (auto& link : inbound_) {
      packed.push_back(link.packing->pieces(window));
      program.message_bytes.push_back(Packing::bytes_of(packed.back()));
    }
    for (auto& ends : ends_) {
      Exchange exchange = exchange_of(ends.from, ends.to, actor_.rank, window);
      Hop hop;
      hop.zero = exchange.zero;
      int64_t width = bytes_of(ends.to.type.dtype), numel = 1;
      for (int64_t dim : exchange.dims) numel *= dim;
      hop.bytes = size_t(numel * width);
      for (auto& piece : exchange.pieces) {
        if (piece.peer != actor_.rank) program.bytes_moved += piece.numel() * width;
        hop.steps.push_back(step_of(ends, piece, packed));
      }
      program.hops.push_back(std::move(hop));
    }
  }

  Step step_of(const Ends& ends, const Piece& piece, const std::vector<std::vector<PackedPiece>>& packed) const {
    auto source =
        std::find_if(ends.sources.begin(), ends.sources.end(), [&](const Source& s) { return s.peer == piece.peer; });
    check(source != ends.sources.end(), "an exchange has a piece of a rank that is no peer");
    Step step;
    step.source = int(source - ends.sources.begin());
    step.piece = ends.to_tensor->layout == "col" ? swapped_last(piece) : piece;
    step.offset = ends.from_tensor->offset;
    if (source->inbound < 0) return step;
    for (auto& candidate : packed[size_t(source->inbound)])
      if (candidate.hop == source->hop) {
        step.piece.from = candidate.unpack.from;
        step.piece.from_dims = candidate.unpack.from_dims;
        step.offset = candidate.offset;
        return step;
      }
    check(false, "a packed message lacks a piece");
    return step;
  }

  // What came over a transport goes to the device in stream order; the slot is released when the firing's event is
  // done.
  void receive(const Inbound& link, size_t bytes) {
    if (!link.constant && actor_.in_header(size_t(link.base)).bytes_valid != int64_t(bytes))
      throw Error(Code::failed, fmt::format("rank {} sent {} bytes of '{}' where the plan has {}", link.peer,
                                            actor_.in_header(size_t(link.base)).bytes_valid,
                                            world_.plan.registers[size_t(link.reg)].name, bytes));
    if (link.landing && bytes > 0) device_.copy_in(stream_, link.landing, message(link), bytes);
  }

  const std::byte* message(const Inbound& link) const {
    return link.constant ? link.constant->data.load(std::memory_order_acquire) : actor_.in_data(size_t(link.base));
  }

  const std::byte* from(const Step& step, const Ends& ends) const {
    auto& source = ends.sources[size_t(step.source)];
    const std::byte* base = source.fixed;
    if (source.inbound >= 0) {
      auto& link = inbound_[size_t(source.inbound)];
      base = link.landing ? link.landing : message(link);
    } else if (source.constant) {
      base = source.constant->data.load(std::memory_order_acquire);
    } else if (!base) {
      base = actor_.in_data(size_t(source.base));
    }
    return base + step.offset;
  }

  void run_hop(const Hop& hop, const Ends& ends) {
    std::byte* to = actor_.out_data(size_t(ends.out)) + ends.to_tensor->offset;
    if (hop.zero && hop.bytes) std::memset(to, 0, hop.bytes);
    pieces_.clear();
    for (auto& step : hop.steps) pieces_.push_back({&step.piece, from(step, ends)});
    run_pieces(pieces_, ends.to.type.dtype, to);
  }

  void launch(const Hop& hop, const Ends& ends) {
    std::byte* to = actor_.out_data(size_t(ends.out)) + ends.to_tensor->offset;
    std::vector<const std::byte*> sources;
    for (auto& step : hop.steps) sources.push_back(from(step, ends));
    stream_.launch([hop, to, sources = std::move(sources), dtype = ends.to.type.dtype,
                    queue = stream_.queue()](std::ptrdiff_t base) {
      if (hop.zero) clear(to + base, hop.bytes, queue);
      for (size_t s = 0; s < hop.steps.size(); ++s)
        run_piece(hop.steps[s].piece, dtype, sources[s] + base, to + base, queue);
    });
  }

  World& world_;
  Actor& actor_;
  DeviceStream& stream_;
  Device& device_;
  std::vector<Ends> ends_;
  std::vector<Inbound> inbound_;
  std::vector<PieceFrom> pieces_;  // of the hop that runs
  Windows<Program> windows_;
};

}  // namespace

std::unique_ptr<Body> make_move(const BodyContext& context) { return std::make_unique<Move>(context); }

}  // namespace sluice
