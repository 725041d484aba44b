// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "planner/items.h"
#include "planner/offsets.h"

namespace sluice::passes {
namespace {

int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The scratch of one chain: its tensors that never leave it, and its ops' workspaces.
class Scratch {
 public:
  Scratch(PlanState& state, PlanActor& actor) : state_(state), plan_(state.plan), actor_(actor) {}

  int64_t place(bool reuse, int64_t base, int64_t& peak) {
    for (size_t o = 0; o < actor_.ops.size(); ++o) {
      for (int t : actor_.ops[o].in) extend(t, int(o));
      for (int t : actor_.ops[o].out) define(t, int(o), reuse);
      make_workspace(int(o));
    }
    peak = peak_of(blocks_);
    int64_t bytes = place_blocks(blocks_, reuse);
    for (auto& [tensor, block] : block_of_) plan_.tensors[size_t(tensor)].offset = base + blocks_[block].offset;
    for (size_t t = 0; t < plan_.tensors.size(); ++t)
      if (auto at = block_of_.find(state_.root[t]); at != block_of_.end())
        plan_.tensors[t].offset = base + blocks_[at->second].offset;
    for (auto& [o, block] : workspace_of_) actor_.ops[size_t(o)].workspace_offset = base + blocks_[block].offset;
    return bytes;
  }

 private:
  bool in_scratch(int tensor) const { return plan_.tensors[size_t(tensor)].reg < 0; }

  int last_use(int root) const {
    int last = -1;
    for (size_t o = 0; o < actor_.ops.size(); ++o)
      for (int t : actor_.ops[o].in)
        if (state_.root[size_t(t)] == root) last = int(o);
    return last;
  }

  void extend(int tensor, int op) {
    auto at = block_of_.find(state_.root[size_t(tensor)]);
    if (at != block_of_.end()) blocks_[at->second].last = std::max(blocks_[at->second].last, op);
  }

  void define(int tensor, int o, bool reuse) {
    if (!in_scratch(tensor)) return;
    if (state_.root[size_t(tensor)] != tensor) return extend(tensor, o);
    if (reuse && tensor == actor_.ops[size_t(o)].out[0])
      if (int donor = alias_of(tensor, o); donor >= 0) {
        block_of_[tensor] = block_of_.at(donor);
        extend(tensor, o);
        return;
      }
    block_of_[tensor] = blocks_.size();
    blocks_.push_back({plan_.tensors[size_t(tensor)].bytes, o, o});
  }

  // Rounded sizes tell nothing: a broadcast operand is read again after the first element is written.
  static bool same_elements(const PlanTensor& a, const PlanTensor& b) { return a.type == b.type && a.sbp == b.sbp; }

  // An input whose buffer output 0 may take: it dies here, nothing else of this op reads it, and the elements agree.
  int alias_of(int tensor, int o) const {
    auto& op = actor_.ops[size_t(o)];
    auto& def = state_.tables.ops.at(op.op);
    for (size_t i = 0; i < op.in.size(); ++i) {
      int root = state_.root[size_t(op.in[i])];
      bool once = std::count_if(op.in.begin(), op.in.end(), [&](int t) { return state_.root[size_t(t)] == root; }) == 1;
      if (((def.alias >> i) & 1) && once && block_of_.count(root) && last_use(root) == o &&
          plan_.tensors[size_t(op.in[i])].layout == "row" &&
          plan_.tensors[size_t(root)].bytes == plan_.tensors[size_t(tensor)].bytes &&
          same_elements(plan_.tensors[size_t(op.in[i])], plan_.tensors[size_t(tensor)]))
        return root;
    }
    return -1;
  }

  void make_workspace(int o) {
    auto& op = actor_.ops[size_t(o)];
    auto& def = state_.tables.ops.at(op.op);
    if (!def.workspace_bytes) return;
    auto types = [&](const std::vector<int>& ids) {
      std::vector<LogicalType> local;
      for (int t : ids) {
        auto& tensor = plan_.tensors[size_t(t)];
        local.push_back(
            {tensor.type.dtype, fixed_shape(local_bound(tensor.type.shape, tensor.sbp, state_.mesh(tensor.cls)))});
      }
      return local;
    };
    op.workspace_bytes = rounded(def.workspace_bytes(types(op.in), types(op.out), op.attrs));
    if (op.workspace_bytes == 0) return;
    workspace_of_[o] = blocks_.size();
    blocks_.push_back({op.workspace_bytes, o, o});
  }

  PlanState& state_;
  Plan& plan_;
  PlanActor& actor_;
  std::vector<Block> blocks_;
  std::map<int, size_t> block_of_;      // root tensor -> block
  std::map<int, size_t> workspace_of_;  // op -> block
};

}  // namespace

static void run(PlanState& state) {
  auto& plan = state.plan;
  bool reuse = state.config.memory_reuse.value;
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    auto& cls = plan.classes[c];
    cls.streams = {{.name = "compute"}, {.name = "move"}};
    for (auto& reg : plan.registers)
      if (reg.cls == int(c)) {
        reg.offset = cls.arena_bytes;
        cls.arena_bytes += reg.bytes * reg.slots;
      }
    int64_t scratch = 0, peak = 0;
    for (auto& actor : plan.actors) {
      if (actor.cls != int(c) || actor.kind != "compute") continue;
      int64_t lowest = 0;
      int64_t bytes = Scratch(state, actor).place(reuse, reuse ? 0 : scratch, lowest);
      scratch = reuse ? std::max(scratch, bytes) : scratch + bytes;
      peak = std::max(peak, lowest);
    }
    cls.streams[0].scratch_offset = cls.arena_bytes;
    cls.streams[0].scratch_bytes = scratch;
    cls.streams[1].scratch_offset = cls.arena_bytes + scratch;
    cls.arena_bytes_lower_bound = cls.arena_bytes + peak;
    cls.arena_bytes += scratch;
  }
}

extern constinit const PassDef memory{
    .name = "memory",
    .doc =
        "Gives every register its place in its class's arena and every tensor inside a chain an offset in the "
        "scratch of its stream, in place where an op allows it.",
    .run = run,
};

}  // namespace sluice::passes
