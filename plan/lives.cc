// SPDX-License-Identifier: Apache-2.0
#include "plan/lives.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"

namespace sluice::memory {
namespace {

constexpr int from_before = -1;         // alive when the chain begins
constexpr int to_the_end = 0x7fffffff;  // published
constexpr int scratch = -1;             // the space; a register's space is its index

// A storage: a tensor and the views of it.
struct Life {
  int space = scratch;
  int64_t offset = 0, bytes = 0;
  int first = 0, last = 0;
  bool written = false;
  std::string name;
};

class Chain {
 public:
  Chain(const Plan& plan, const OpTable& ops, const std::vector<bool>& views, const PlanActor& actor)
      : plan_(plan), ops_(ops), views_(views), actor_(actor) {
    scratch_bytes_ = plan.classes[size_t(actor.cls)].streams[size_t(actor.stream)].scratch_bytes;
  }

  void run() {
    for (now_ = 0; now_ < int(actor_.ops.size()); ++now_) {
      auto& op = actor_.ops[size_t(now_)];
      for (int t : op.in) read(op, t);
      for (size_t o = 0; o < op.out.size(); ++o)
        if (!(o == 0 && view(op))) write(op, op.out[o]);
    }
    complete();
    conflicts();
    workspaces();
  }

 private:
  const PlanTensor& at(int t) const { return plan_.tensors[size_t(t)]; }
  std::string name(int t) const { return word_of(at(t).name); }
  [[noreturn]] void refuse(const PlanOp& op, std::string_view why) const {
    memory::refuse(fmt::format("the op {} of actor {}: {}", word_of(op.name), word_of(actor_.name), why), op.place);
  }

  bool own(int reg) const {
    return std::any_of(actor_.out.begin(), actor_.out.end(), [reg](auto& port) { return port.reg == reg; });
  }
  bool changes(int t) const { return at(t).reg < 0 || own(at(t).reg); }

  Life& begin(int t, int first, int last, bool written) {
    auto& tensor = at(t);
    lives_.push_back({tensor.reg, tensor.offset, tensor.bytes, first, last, written, name(t)});
    life_of_[t] = int(lives_.size()) - 1;
    return lives_.back();
  }
  Life* life(int t) {
    auto found = life_of_.find(t);
    return found == life_of_.end() ? nullptr : &lives_[size_t(found->second)];
  }

  // What was there before the chain began is one storage, under whatever names (a variable, and a view of it that
  // another actor made) the chain reads it.
  void begin_before(int t) {
    auto& tensor = at(t);
    for (size_t i = 0; i < lives_.size(); ++i) {
      auto& life = lives_[i];
      if (life.space != tensor.reg || life.offset != tensor.offset || life.first != from_before) continue;
      life.last = std::max(life.last, now_);
      life_of_[t] = int(i);
      return;
    }
    begin(t, from_before, now_, false);
  }

  void read(const PlanOp& op, int t) {
    if (!changes(t)) return;
    if (auto* life = this->life(t)) {
      life->last = std::max(life->last, now_);
      return;
    }
    int reg = at(t).reg;
    if (reg < 0)
      refuse(op, fmt::format("it reads {} from the scratch, where no earlier op of its chain put it", name(t)));
    // The slot that was published last: the acquired one's memory only where there is no other.
    if (plan_.registers[size_t(reg)].slots == 1) begin_before(t);
  }

  void write(const PlanOp& op, int t) {
    if (at(t).reg < 0 && at(t).offset + at(t).bytes > scratch_bytes_)
      refuse(op, fmt::format("{} ends behind the scratch of {} bytes", name(t), scratch_bytes_));
    if (!changes(t)) return;  // types: no out-port
    auto* life = this->life(t);
    int last = at(t).reg < 0 ? now_ : to_the_end;
    if (!life) {
      begin(t, now_, last, true);
      return;
    }
    if (life->written) refuse(op, fmt::format("it writes {}, which is written before", name(t)));
    if (life->last == now_ && !may_alias(op, t, life_of_[t]))
      refuse(op, fmt::format("it writes {} while it reads it", name(t)));
    life->written = true;
    life->last = last;
  }

  // A view of input 0 adds no storage: its output lives in its input's.
  bool view(const PlanOp& op) {
    if (!is_view(plan_, ops_, op)) return false;
    int in = op.in[0], out = op.out[0];
    if (life(out)) refuse(op, fmt::format("it writes {}, which is written before", name(out)));
    auto* life = this->life(in);
    if (!life) return true;  // of what this chain only reads
    life->bytes = std::max(life->bytes, at(out).bytes);
    life_of_[out] = life_of_[in];
    return true;
  }

  // Whether `op` may put its output `t` where those inputs lie that live in `storage`.
  bool may_alias(const PlanOp& op, int t, int storage) const {
    auto* def = ops_.find(op.op);
    auto output = std::find(op.out.begin(), op.out.end(), t) - op.out.begin();
    for (size_t i = 0; def && i < op.in.size(); ++i) {
      auto found = life_of_.find(op.in[i]);
      if (found == life_of_.end() || found->second != storage) continue;
      bool allowed = output == 0 && i < 32 && (def->alias >> i & 1);
      for (auto& state : def->states) allowed |= state.input == int(i) && state.output == output;
      auto &in = at(op.in[i]), &out = at(t);
      // An operand that is broadcast is read again after the first element is written.
      bool fits = in.offset == out.offset && in.layout == out.layout && in.type.shape == out.type.shape &&
                  in.sbp == out.sbp && bytes_of(in.type.dtype) == bytes_of(out.type.dtype);
      if (!allowed || !fits) return false;
    }
    return def != nullptr;
  }

  // What is published was written. The value of a variable is replaced by its next one.
  void complete() {
    for (auto& port : actor_.out) {
      auto& reg = plan_.registers[size_t(port.reg)];
      auto written = [&](int t) { return views_[size_t(t)] || (life(t) && life(t)->written); };
      auto missing = std::find_if_not(reg.tensors.begin(), reg.tensors.end(), written);
      bool some = std::any_of(reg.tensors.begin(), reg.tensors.end(), written);
      if (missing != reg.tensors.end() && (reg.variable.empty() || !some) && !actor_.ops.empty())
        memory::refuse(fmt::format("the actor {} publishes {}, which none of its ops writes", word_of(actor_.name),
                                   name(*missing)));
    }
  }

  void conflicts() const {
    std::vector<int> order;
    for (size_t i = 0; i < lives_.size(); ++i) order.push_back(int(i));
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      auto &x = lives_[size_t(a)], &y = lives_[size_t(b)];
      return std::tie(x.space, x.offset, a) < std::tie(y.space, y.offset, b);
    });
    for (size_t i = 0; i < order.size(); ++i)
      for (size_t j = i + 1; j < order.size(); ++j) {
        auto &a = lives_[size_t(order[i])], &b = lives_[size_t(order[j])];
        if (a.space != b.space || b.offset >= a.offset + a.bytes) break;
        if (overlap(a.offset, a.bytes, b.offset, b.bytes)) pair(order[i], order[j]);
      }
  }

  void pair(int a, int b) const {
    if (lives_[size_t(a)].first > lives_[size_t(b)].first) std::swap(a, b);
    auto &early = lives_[size_t(a)], &late = lives_[size_t(b)];
    if (early.last < late.first) return;
    if (early.last == late.first && early.first < late.first) {
      auto& op = actor_.ops[size_t(late.first)];
      for (int t : op.out)
        if (auto found = life_of_.find(t); found != life_of_.end() && found->second == b && may_alias(op, t, a)) return;
    }
    memory::refuse(fmt::format("{} and {} share bytes in {} of actor {} while both are alive", early.name, late.name,
                               early.space < 0 ? "the scratch" : "a register", word_of(actor_.name)));
  }

  void workspaces() const {
    for (size_t i = 0; i < actor_.ops.size(); ++i) {
      auto& op = actor_.ops[i];
      if (op.workspace_bytes == 0) continue;
      aligned(op.workspace_offset, "the workspace of the op " + word_of(op.name));
      if (op.workspace_offset + op.workspace_bytes > scratch_bytes_)
        refuse(op, fmt::format("its workspace ends behind the scratch of {} bytes", scratch_bytes_));
      for (auto& life : lives_)
        if (life.space < 0 && life.first <= int(i) && int(i) <= life.last &&
            overlap(op.workspace_offset, op.workspace_bytes, life.offset, life.bytes))
          refuse(op, fmt::format("its workspace lies over {}, which is alive", life.name));
    }
  }

  const Plan& plan_;
  const OpTable& ops_;
  const std::vector<bool>& views_;
  const PlanActor& actor_;
  int64_t scratch_bytes_ = 0;
  int now_ = 0;
  std::vector<Life> lives_;
  std::map<int, int> life_of_;  // tensor -> life
};

}  // namespace

void refuse(std::string why, const Place& place) { throw Error(Code::value, "memory: " + std::move(why), place); }

bool overlap(int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

void aligned(int64_t value, std::string_view what) {
  constexpr int64_t alignment = 64;
  if (value % alignment != 0) refuse(fmt::format("{} is {}, no multiple of {}", what, value, alignment));
}

bool is_view(const Plan& plan, const OpTable& ops, const PlanOp& op) {
  auto* def = ops.find(op.op);
  if (!def || def->view == ViewKind::none || op.in.empty() || op.out.empty() || op.in[0] == op.out[0]) return false;
  auto &in = plan.tensors[size_t(op.in[0])], &out = plan.tensors[size_t(op.out[0])];
  return in.reg == out.reg && in.offset == out.offset;
}

void check_lives(const Plan& plan, const OpTable& ops, const std::vector<bool>& views, const PlanActor& actor) {
  Chain(plan, ops, views, actor).run();
}

}  // namespace sluice::memory
