// SPDX-License-Identifier: Apache-2.0
// A sink's body: hands its rank's parts of the outputs to the client. Of equal copies (B) the first rank's counts.
// On an asynchronous device they are copied to pinned memory first, and the firing ends when the copy is done.
#include "actors/staging.h"

namespace sluice {
namespace {

class Sink final : public Body {
 public:
  explicit Sink(const BodyContext& context) : context_(context), coords_(context.mesh().coords(context.actor.rank)) {
    auto& plan = *context.actor.plan;
    for (size_t t = 0; t < plan.tensors.size(); ++t)
      add(context.plan().tensors[size_t(plan.tensors[t])], plan.names[t]);
    size_t bytes = 0;
    for (auto& output : outputs_) bytes = std::max(bytes, output.staged + size_t(output.tensor->bytes));
    staging_ = std::make_unique<Staging>(*context.site.device, bytes, 1);
  }

  void run(const Firing& firing) override {
    if (!context_.world.async) return;
    for (auto& output : outputs_) {
      Part part = part_of(firing, output);
      context_.site.device->copy_out(context_.stream, staging_->slot(0) + output.staged, data(output),
                                     size_t(part.box.numel() * bytes_of(output.tensor->type.dtype)));
    }
    copied_ = outputs_.empty() ? nullptr : context_.stream.record();
  }
  EventPtr after(const Firing&) override { return copied_; }

  void complete(const Firing& firing) override {
    World& world = context_.world;
    if (auto failure = world.async ? context_.stream.take_failure() : nullptr) std::rethrow_exception(failure);
    for (auto& output : outputs_) {
      Part part = part_of(firing, output);
      const std::byte* from = world.async ? staging_->slot(0) + output.staged : data(output);
      if (!world.computes) from = nullptr;
      world.results.add(firing, output.name, output.tensor->type, part.window, part.box, from);
    }
    if (world.results.finish_part(firing) && world.waiting.load() == World::result) world.tell_client();
  }

 private:
  struct Output {
    const PlanTensor* tensor = nullptr;
    std::string name;
    size_t in = 0, staged = 0;
  };
  struct Part {
    Window window;
    Box box;
  };

  void add(const PlanTensor& tensor, const std::string& name) {
    std::string of = "the output '" + name + "'";
    auto& links = context_.actor.in;
    size_t in = 0;
    while (in < links.size() && (!links[in].plan || links[in].id != tensor.reg)) ++in;
    if (in == links.size()) throw Error(Code::value, of + " has no in-port");
    if (tensor.layout != "row") throw Error(Code::value, of + " leaves the plan in another layout than row");
    for (size_t a = 0; a < tensor.sbp.size(); ++a) {
      if (tensor.sbp[a].is_partial()) throw Error(Code::value, of + " leaves the plan as a partial sum");
      if (tensor.sbp[a].kind == Sbp::B && coords_[a] != 0) return;
    }
    size_t staged =
        outputs_.empty() ? 0 : outputs_.back().staged + size_t(outputs_.back().tensor->bytes + 63) / 64 * 64;
    outputs_.push_back({&tensor, name, in, staged});
  }

  // The part of the output that this firing brings, by the rate of the in-port.
  Part part_of(const Firing& firing, const Output& output) const {
    Actor& actor = context_.actor;
    uint32_t period = actor.in_ports[output.in].period;
    Part part;
    part.window = window_at(firing, firing.micro / period, actor.firings / period);
    part.box = local_box(output.tensor->type.shape, output.tensor->sbp, context_.mesh(), coords_, part.window);
    return part;
  }

  const std::byte* data(const Output& output) const {
    return context_.actor.in_data(output.in) + output.tensor->offset;
  }

  const BodyContext context_;
  std::vector<int> coords_;
  std::vector<Output> outputs_;
  std::unique_ptr<Staging> staging_;
  EventPtr copied_;
};

}  // namespace

std::unique_ptr<Body> make_sink(const BodyContext& context) { return std::make_unique<Sink>(context); }

}  // namespace sluice
