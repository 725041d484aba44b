// SPDX-License-Identifier: Apache-2.0
// A compute actor's body: a launch list. Calls and views are built once per window; a firing patches the data
// pointers of registers with several slots and the step, and runs the kernels one after the other.
#include <fmt/format.h>

#include <set>

#include "actors/body.h"

namespace sluice {
namespace {

// Where an operand lies. `base` is an index into what a firing resolves: in-ports, slots being filled, slots
// published last; or none for memory that never moves.
struct Operand {
  const PlanTensor* tensor = nullptr;
  int base = -1;
  std::byte* fixed = nullptr;
  uint32_t period = 1;  // of the port: a token may span several firings
};

struct Program {
  Window window;
  std::vector<View> views;
  std::vector<Call> calls;
};

class Compute final : public Body {
 public:
  explicit Compute(const BodyContext& context)
      : world_(context.world),
        actor_(context.actor),
        stream_(context.stream),
        cls_(context.cls()),
        coords_(cls_.mesh.coords(context.actor.rank)),
        windows_(context.actor.firings) {
    std::byte* arena = context.site.arenas.at(actor_.plan->cls);
    scratch_ = arena + cls_.streams[size_t(actor_.plan->stream)].scratch_offset;
    std::set<int> written;
    for (auto& op : actor_.plan->ops) {
      ops_.push_back(&context.tables.ops.at(op.op));
      for (int tensor : op.in) add(context, op, tensor, written.contains(tensor));
      for (int tensor : op.out) add(context, op, tensor, true);
      written.insert(op.out.begin(), op.out.end());
      for (auto* side : {&op.in, &op.out})
        for (int tensor : *side) types_.push_back(world_.plan.tensors[size_t(tensor)].type);
    }
    for (size_t v = 0; v < operands_.size(); ++v)
      if (operands_[v].base >= 0)
        patches_.push_back({uint32_t(v), uint32_t(operands_[v].base), operands_[v].tensor->offset});
    bases_.resize(actor_.in.size() + 2 * actor_.out.size());
  }

  void run(const Firing& firing) override {
    if (world_.async) take_fault();
    Program& program = windows_.get(firing, [&](Program& fresh) { build(fresh, firing); });
    if (!patches_.empty()) patch(program);
    if (world_.async) return launch(program, firing);
    for (current_ = 0; current_ < program.calls.size(); ++current_) {
      Call& call = program.calls[current_];
      if (skipped(current_, call)) continue;
      call.step = firing.step;
      run_cpu(*ops_[current_], call);
    }
  }

  At at() const override { return at(current_); }

 private:
  struct Patch {
    uint32_t view, base;
    int64_t offset;
  };

  At at(size_t op) const {
    if (op >= actor_.plan->ops.size()) return {};
    auto& plan = actor_.plan->ops[op];
    return {"op '" + plan.name + "'", plan.place};
  }

  // A tensor of a register that this actor writes is the slot being filled once it was written in this firing (or is
  // written now), and the slot published last before.
  void add(const BodyContext& context, const PlanOp& op, int id, bool written) {
    Operand operand;
    auto& tensor = operand.tensor = &world_.plan.tensors[size_t(id)];
    auto ins = int(actor_.in.size()), outs = int(actor_.out.size());
    if (tensor->reg < 0) {
      operand.fixed = scratch_ + tensor->offset;
      operands_.push_back(operand);
      return;
    }
    Register* mine = context.find(tensor->reg, actor_.rank);
    if (mine && mine->plan->producer < 0) operand.fixed = mine->memory + tensor->offset;
    for (int o = 0; o < outs && !operand.fixed; ++o) {
      if (actor_.out[size_t(o)] != mine) continue;
      operand.base = ins + (written ? 0 : outs) + o;
      operand.period = written ? uint32_t(actor_.plan->out[size_t(o)].period) : 1;
      if (mine->plan->slots == 1) operand.fixed = mine->memory + tensor->offset;
      break;
    }
    for (int i = 0; i < ins && !operand.fixed && operand.base < 0; ++i) {
      if (actor_.in[size_t(i)].id != tensor->reg) continue;
      operand.base = i;
      operand.period = actor_.in_ports[size_t(i)].period;
      if (mine && mine->plan->slots == 1) operand.fixed = mine->memory + tensor->offset;
    }
    if (!operand.fixed && operand.base < 0)
      throw Error(Code::value,
                  fmt::format("actor '{}' has no port for the register of tensor '{}', which its op '{}' uses",
                              actor_.plan->name, tensor->name, op.name));
    if (operand.fixed) operand.base = -1;
    operands_.push_back(operand);
  }

  void build(Program& program, const Firing& firing) const {
    program.window = window_at(firing, firing.micro, actor_.firings);
    for (auto& operand : operands_) program.views.push_back(view(operand, firing));
    const View* views = program.views.data();
    const LogicalType* types = types_.data();
    for (auto& op : actor_.plan->ops) {
      Call call;
      call.in = {views, op.in.size()};
      call.out = {views + op.in.size(), op.out.size()};
      call.in_types = {types, op.in.size()};
      call.out_types = {types + op.in.size(), op.out.size()};
      call.attrs = &op.attrs;
      call.workspace = op.workspace_bytes > 0 ? scratch_ + op.workspace_offset : nullptr;
      call.seed = world_.plan.seed;
      call.op_key = name_hash(op.name);
      call.micro_batch = int32_t(firing.micro);
      call.window = &program.window;
      call.threads = world_.options.threads;
      call.exact = world_.plan.exact;
      call.queue = stream_.queue();
      program.calls.push_back(call);
      views += op.in.size() + op.out.size();
      types += op.in.size() + op.out.size();
    }
  }

  View view(const Operand& operand, const Firing& firing) const {
    auto& type = operand.tensor->type;
    Window window = window_at(firing, firing.micro / operand.period, actor_.firings / operand.period);
    Box box = local_box(type.shape, operand.tensor->sbp, cls_.mesh, coords_, window);
    auto origin = window_origin(type.shape, window);
    View view;
    view.data = operand.fixed;
    view.dtype = type.dtype;
    view.rank = int(type.shape.size());
    view.col = operand.tensor->layout == "col";
    for (size_t d = 0; d < type.shape.size(); ++d) {
      view.dims[d] = box.dims[d].size;
      view.origin[d] = origin[d] + box.dims[d].begin;
      bool batch = type.shape[d].sym == batch_sym;  // the plan's dims hold a micro-batch
      view.whole[d] = batch ? type.shape[d].granule * world_.plan.batch_bound : type.shape[d].size;
    }
    return view;
  }

  void patch(Program& program) {
    size_t ins = actor_.in.size(), outs = actor_.out.size();
    for (size_t i = 0; i < ins; ++i)
      bases_[i] = actor_.in[i].plan ? const_cast<std::byte*>(actor_.in_data(i)) : nullptr;
    for (size_t o = 0; o < outs; ++o) {
      bases_[ins + o] = actor_.out_data(o);
      bases_[ins + outs + o] = const_cast<std::byte*>(actor_.last_data(o));
    }
    for (auto& patch : patches_) program.views[patch.view].data = bases_[patch.base] + patch.offset;
  }

  // A view (reshape, transpose) whose output is its input's memory has nothing to do.
  bool skipped(size_t op, const Call& call) const {
    return ops_[op]->view != ViewKind::none && call.out[0].data == call.in[0].data;
  }

  // On an asynchronous device a launch owns what it needs: the program is patched again before it runs.
  void launch(const Program& program, const Firing& firing) {
    for (current_ = 0; current_ < program.calls.size(); ++current_) {
      const Call& planned = program.calls[current_];
      if (skipped(current_, planned)) continue;
      std::vector<View> views(planned.in.begin(), planned.in.end());
      views.insert(views.end(), planned.out.begin(), planned.out.end());
      stream_.launch([this, op = current_, call = planned, views = std::move(views), window = program.window,
                      step = firing.step](std::ptrdiff_t base) mutable {
        for (auto& view : views) view.data = static_cast<std::byte*>(view.data) + base;
        call.in = {views.data(), call.in.size()};
        call.out = {views.data() + call.in.size(), call.out.size()};
        if (call.workspace) call.workspace = static_cast<std::byte*>(call.workspace) + base;
        call.window = &window;
        call.step = step;
        run_launched(op, call);
      });
    }
  }

  // What a kernel saw that an earlier firing enqueued: kernels cannot throw.
  void take_fault() {
    if (auto failure = stream_.take_failure()) std::rethrow_exception(failure);
  }

  // On the device's own thread: after the first failure nothing of this floor computes any more.
  void run_launched(size_t op, const Call& call) {
    if (world_.stopped.load(std::memory_order_relaxed)) return;
    try {
      run_op(*ops_[op], call);
    } catch (...) {
      At where = at(op);
      world_.fail(failure_of(std::current_exception(), actor_, where.what, where.place, call.step));
    }
  }

  World& world_;
  Actor& actor_;
  DeviceStream& stream_;
  const PlanClass& cls_;
  std::vector<int> coords_;
  std::byte* scratch_ = nullptr;
  std::vector<const OpDef*> ops_;
  std::vector<Operand> operands_;  // of all ops, inputs then outputs
  std::vector<LogicalType> types_;
  std::vector<Patch> patches_;
  std::vector<std::byte*> bases_;
  Windows<Program> windows_;
  size_t current_ = ~size_t(0);
};

}  // namespace

std::unique_ptr<Body> make_compute(const BodyContext& context) { return std::make_unique<Compute>(context); }

}  // namespace sluice
