// SPDX-License-Identifier: Apache-2.0
// A move actor's body: for each hop, the pieces of its peers' slots are copied or added into its own, in the order of
// peers. Programs depend on the window only.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "actors/body.h"

namespace sluice {
namespace {

struct Step {
  Piece piece;
  int base = -1;                     // in-port that brings the peer's slot
  const std::byte* fixed = nullptr;  // or a constant's memory
};

struct Hop {
  std::vector<Step> steps;
  bool zero = false;
  size_t bytes = 0;  // of the destination
};

struct Program {
  std::vector<Hop> hops;
  int64_t bytes_moved = 0;
};

class Move final : public Body {
 public:
  explicit Move(const BodyContext& context)
      : world_(context.world), actor_(context.actor), stream_(context.stream), windows_(context.actor.firings) {
    for (auto& plan : actor_.plan->moves) add(context, plan);
  }

  void run(const Firing& firing) override {
    Program& program = windows_.get(firing, [&](Program& fresh) { build(fresh, firing); });
    world_.bytes_moved.fetch_add(program.bytes_moved, std::memory_order_relaxed);
    for (size_t h = 0; h < ends_.size(); ++h)
      if (world_.async)
        launch(program.hops[h], ends_[h]);
      else
        run_hop(program.hops[h], ends_[h]);
  }

 private:
  // What of a hop does not depend on the window.
  struct Source {
    int peer = 0, base = -1;
    const std::byte* fixed = nullptr;
  };
  struct Ends {
    PlacedType from, to;
    const PlanTensor *from_tensor = nullptr, *to_tensor = nullptr;
    int out = -1;  // out-port
    std::vector<Source> sources;
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
      Source source{peer, -1, nullptr};
      Register* reg = context.find(ends.from_tensor->reg, peer);
      if (reg && reg->plan->producer < 0) source.fixed = reg->memory;
      for (size_t i = 0; i < actor_.in.size() && !source.fixed; ++i)
        if (actor_.in[i].id == ends.from_tensor->reg && actor_.in[i].peer == peer) source.base = int(i);
      if (!source.fixed && source.base < 0)
        throw Error(Code::value, of + fmt::format(" has no in-port for rank {}", peer));
      ends.sources.push_back(source);
    }
    ends_.push_back(std::move(ends));
  }

  void build(Program& program, const Firing& firing) const {
    Window window = window_at(firing, firing.micro, actor_.firings);
    for (auto& ends : ends_) {
      Exchange exchange = exchange_of(ends.from, ends.to, actor_.rank, window);
      Hop hop;
      hop.zero = exchange.zero;
      int64_t width = bytes_of(ends.to.type.dtype), numel = 1;
      for (int64_t dim : exchange.dims) numel *= dim;
      hop.bytes = size_t(numel * width);
      for (auto& piece : exchange.pieces) {
        if (piece.peer != actor_.rank) program.bytes_moved += piece.numel() * width;
        auto source = std::find_if(ends.sources.begin(), ends.sources.end(),
                                   [&](const Source& s) { return s.peer == piece.peer; });
        check(source != ends.sources.end(), "an exchange has a piece of a rank that is no peer");
        if (ends.to_tensor->layout == "col") swap_last(piece);
        hop.steps.push_back({piece, source->base, source->fixed});
      }
      program.hops.push_back(std::move(hop));
    }
  }

  static void swap_last(Piece& piece) {
    size_t n = piece.to.size();
    if (n < 2) return;
    std::swap(piece.from[n - 1], piece.from[n - 2]);
    std::swap(piece.to[n - 1], piece.to[n - 2]);
    std::swap(piece.from_dims[n - 1], piece.from_dims[n - 2]);
    std::swap(piece.to_dims[n - 1], piece.to_dims[n - 2]);
  }

  const std::byte* from(const Step& step, const Ends& ends) const {
    return (step.fixed ? step.fixed : actor_.in_data(size_t(step.base))) + ends.from_tensor->offset;
  }

  void run_hop(const Hop& hop, const Ends& ends) const {
    std::byte* to = actor_.out_data(size_t(ends.out)) + ends.to_tensor->offset;
    if (hop.zero && hop.bytes) std::memset(to, 0, hop.bytes);
    for (auto& step : hop.steps) run_piece(step.piece, ends.to.type.dtype, from(step, ends), to);
  }

  void launch(const Hop& hop, const Ends& ends) {
    std::byte* to = actor_.out_data(size_t(ends.out)) + ends.to_tensor->offset;
    std::vector<const std::byte*> sources;
    for (auto& step : hop.steps) sources.push_back(from(step, ends));
    stream_.launch([hop, to, sources = std::move(sources), dtype = ends.to.type.dtype](std::ptrdiff_t base) {
      if (hop.zero && hop.bytes) std::memset(to + base, 0, hop.bytes);
      for (size_t s = 0; s < hop.steps.size(); ++s) run_piece(hop.steps[s].piece, dtype, sources[s] + base, to + base);
    });
  }

  World& world_;
  Actor& actor_;
  DeviceStream& stream_;
  std::vector<Ends> ends_;
  Windows<Program> windows_;
};

}  // namespace

std::unique_ptr<Body> make_move(const BodyContext& context) { return std::make_unique<Move>(context); }

}  // namespace sluice
