// SPDX-License-Identifier: Apache-2.0
// Where data enters a plan: a source reads its rank's rows of the micro-batch from a reader, a feed cuts its part out
// of what the client fed. On an asynchronous device both fill pinned memory and copy it in stream order.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "actors/staging.h"

namespace sluice {
namespace {

// A tensor that an inlet fills, and where.
struct Target {
  const PlanTensor* tensor = nullptr;
  std::string name;
  size_t out = 0;
};

class Inlet : public Body {
 public:
  explicit Inlet(const BodyContext& context) : context_(context), coords_(context.mesh().coords(context.actor.rank)) {
    Actor& actor = context_.actor;
    for (size_t t = 0; t < actor.plan->tensors.size(); ++t) {
      auto& tensor = context.plan().tensors[size_t(actor.plan->tensors[t])];
      targets_.push_back({&tensor, actor.plan->names[t], out_of(tensor)});
    }
    for (auto* reg : actor.out)
      staging_.push_back(
          std::make_unique<Staging>(*context.site.device, size_t(reg->plan->bytes), size_t(reg->plan->slots)));
  }

  EventPtr before(const Firing&) override {
    for (size_t o = 0; o < staging_.size(); ++o)
      if (EventPtr event = staging_[o]->pending(slot(o))) return event;
    return nullptr;
  }

  void run(const Firing& firing) override {
    Actor& actor = context_.actor;
    for (auto& target : targets_) {
      auto& type = target.tensor->type;
      uint32_t period = actor.out_ports[target.out].period;
      Window window = window_at(firing, firing.micro / period, actor.firings / period);
      Box box = local_box(type.shape, target.tensor->sbp, context_.mesh(), coords_, window);
      int64_t offset = target.tensor->offset;
      bool async = context_.world.async;
      std::byte* device = actor.out_data(target.out) + offset;
      std::byte* host = async ? staging_[target.out]->slot(slot(target.out)) + offset : device;
      fill(firing, target, window, box, host);
      if (async)
        context_.site.device->copy_in(context_.stream, device, host, size_t(box.numel() * bytes_of(type.dtype)));
    }
    for (size_t o = 0; o < staging_.size() && context_.world.async; ++o)
      staging_[o]->use(slot(o), context_.stream.record());
  }

 protected:
  virtual void fill(const Firing& firing, const Target& target, const Window& window, const Box& box,
                    std::byte* to) = 0;
  size_t out_of(const PlanTensor& tensor) const {
    auto& out = context_.actor.out;
    if (tensor.layout != "row")
      throw Error(Code::value, "'" + tensor.name + "' enters the plan in another layout than row");
    for (size_t o = 0; o < out.size(); ++o)
      if (out[o]->id == tensor.reg) return o;
    throw Error(Code::value, "'" + tensor.name + "' has no out-port by which it enters the plan");
  }
  size_t slot(size_t out) const { return context_.actor.out[out]->state.next(); }

  // Copies `box` out of a dense array that starts at `origin` of the logical tensor.
  static void cut(const Box& box, const std::vector<int64_t>& begin, const std::vector<int64_t>& dims, DType dtype,
                  const void* from, void* to) {
    Piece piece;
    for (size_t d = 0; d < box.dims.size(); ++d) {
      piece.from.push_back({begin[d], box.dims[d].size});
      piece.to.push_back({0, box.dims[d].size});
      piece.to_dims.push_back(box.dims[d].size);
    }
    piece.from_dims = dims;
    run_piece(piece, dtype, from, to);
  }

  const BodyContext context_;
  std::vector<int> coords_;
  std::vector<Target> targets_;
  std::vector<std::unique_ptr<Staging>> staging_;  // per out-port
};

class SourceBody final : public Inlet {
 public:
  explicit SourceBody(const BodyContext& context) : Inlet(context) {
    auto& plan = context.plan();
    int index = context.actor.plan->source;
    if (index < 0 || size_t(index) >= plan.sources.size())
      throw Error(Code::value, "actor '" + context.actor.plan->name + "' names no data source");
    source_ = &plan.sources[size_t(index)];
    reader_ = context.sources[size_t(index)].get();
    for (auto& target : targets_) fields_.push_back(field_of(target));
  }

 private:
  // The names of a source actor are its fields' names or numbers.
  int field_of(const Target& target) const {
    auto& fields = reader_->fields();
    int field = -1;
    auto* last = target.name.data() + target.name.size();
    auto [end, bad] = std::from_chars(target.name.data(), last, field);
    if (bad != std::errc{} || end != last) {
      auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == target.name; });
      field = found == fields.end() ? -1 : int(found - fields.begin());
    }
    if (field < 0 || size_t(field) >= fields.size())
      throw Error(Code::not_found, fmt::format("the data source '{}' has no field '{}'", source_->reader, target.name));
    auto& type = target.tensor->type;
    auto& row = fields[size_t(field)];
    bool fits = type.dtype == row.dtype && type.shape.size() == row.row_dims.size() + 1 &&
                type.shape[0].sym == batch_sym && type.shape[0].granule == 1;
    for (size_t d = 1; fits && d < type.shape.size(); ++d)
      fits = type.shape[d].sym == fixed_sym && type.shape[d].size == row.row_dims[d - 1];
    if (!fits)
      throw Error(Code::value,
                  fmt::format("field '{}' of '{}' is {} a row of {}; the plan expects {}", row.name, source_->reader,
                              name_of(row.dtype), text_of(fixed_shape(row.row_dims)), text_of(type)));
    return field;
  }

  void fill(const Firing& firing, const Target& target, const Window& window, const Box& box, std::byte* to) override {
    auto& type = target.tensor->type;
    int64_t total = reader_->rows(), batch = context_.world.steps.batch;
    int64_t steps_per_epoch = (total + batch - 1) / batch;
    int64_t begin = firing.step % steps_per_epoch * batch + window.valid[batch_sym].begin + box.dims[0].begin;
    rows_.clear();
    for (int64_t i = 0; i < box.dims[0].size; ++i)
      rows_.push_back(row_at(begin + i, total, source_->shuffle, context_.plan().seed, firing.step / steps_per_epoch));
    int field = fields_[size_t(&target - targets_.data())];
    bool whole = true;
    std::vector<int64_t> from_dims{box.dims[0].size}, from_begin{0};
    int64_t row = 1;
    for (size_t d = 1; d < type.shape.size(); ++d) {
      whole = whole && box.dims[d].size == type.shape[d].size;
      from_dims.push_back(type.shape[d].size);
      from_begin.push_back(box.dims[d].begin);
      row *= type.shape[d].size;
    }
    if (whole) return reader_->read(field, rows_, to);
    rows_buffer_.resize(size_t(row * box.dims[0].size * bytes_of(type.dtype)));
    reader_->read(field, rows_, rows_buffer_.data());
    cut(box, from_begin, from_dims, type.dtype, rows_buffer_.data(), to);
  }

  const Source* source_ = nullptr;
  const Reader* reader_ = nullptr;
  std::vector<int> fields_;
  std::vector<int64_t> rows_;
  std::vector<std::byte> rows_buffer_;
};

class FeedBody final : public Inlet {
 public:
  explicit FeedBody(const BodyContext& context) : Inlet(context) {}

 private:
  void fill(const Firing& firing, const Target& target, const Window& window, const Box& box, std::byte* to) override {
    auto& type = target.tensor->type;
    const HostArray& array = firing.batch->at(target.name);  // checked when it was fed
    auto begin = window_origin(type.shape, window);
    for (size_t d = 0; d < begin.size(); ++d) begin[d] += box.dims[d].begin;
    cut(box, begin, array.dims, type.dtype, array.data.data(), to);
  }
};

}  // namespace

std::unique_ptr<Body> make_source(const BodyContext& context) { return std::make_unique<SourceBody>(context); }
std::unique_ptr<Body> make_feed(const BodyContext& context) { return std::make_unique<FeedBody>(context); }

}  // namespace sluice
