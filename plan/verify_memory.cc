// SPDX-License-Identifier: Apache-2.0
// Memory: what lies where in the arena and in the slots. What lives when in a chain is lives.cc.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "plan/lives.h"
#include "plan/verify.h"

namespace sluice::memory {
namespace {

// ---- the arena ----------------------------------------------------------------------------------------------------

struct Region {
  int64_t offset = 0, bytes = 0;
  std::string name;
};

std::vector<Region> regions_of(const Plan& plan, int c) {
  std::vector<Region> regions;
  for (auto& reg : plan.registers)
    if (reg.cls == c) regions.push_back({reg.offset, reg.bytes * reg.slots, "the register " + word_of(reg.name)});
  for (auto& stream : plan.classes[size_t(c)].streams)
    regions.push_back({stream.scratch_offset, stream.scratch_bytes, "the scratch of stream " + word_of(stream.name)});
  std::erase_if(regions, [](auto& region) { return region.bytes == 0; });
  std::stable_sort(regions.begin(), regions.end(), [](auto& a, auto& b) { return a.offset < b.offset; });
  return regions;
}

void check_arena(const Plan& plan, int c) {
  auto& cls = plan.classes[size_t(c)];
  auto regions = regions_of(plan, c);
  for (size_t i = 0; i < regions.size(); ++i) {
    auto& region = regions[i];
    aligned(region.offset, "the offset of " + region.name);
    if (region.offset + region.bytes > cls.arena_bytes)
      refuse(fmt::format("{} ends at {}, behind the arena of class {} with {} bytes", region.name,
                         region.offset + region.bytes, word_of(cls.name), cls.arena_bytes));
    if (i > 0 && overlap(regions[i - 1].offset, regions[i - 1].bytes, region.offset, region.bytes))
      refuse(fmt::format("{} and {} overlap in the arena of class {}", regions[i - 1].name, region.name,
                         word_of(cls.name)));
  }
}

// ---- tensors in their slots -----------------------------------------------------------------------------------------

void check_tensor(const Plan& plan, const PlanTensor& tensor) {
  auto name = "the tensor " + word_of(tensor.name);
  aligned(tensor.offset, "the offset of " + name);
  int64_t bytes = bytes_of(tensor.type.dtype);
  for (int64_t size : local_bound(tensor.type.shape, tensor.sbp, plan.classes[size_t(tensor.cls)].mesh)) bytes *= size;
  if (tensor.bytes < bytes)
    refuse(fmt::format("{} has {} bytes, but its largest part needs {}", name, tensor.bytes, bytes));
  if (tensor.reg < 0) return;
  auto& reg = plan.registers[size_t(tensor.reg)];
  if (reg.cls != tensor.cls)
    refuse(fmt::format("{} lies in the register {} of another class", name, word_of(reg.name)));
  if (tensor.offset + tensor.bytes > reg.bytes)
    refuse(fmt::format("{} ends at {}, behind the slot of register {} with {} bytes", name,
                       tensor.offset + tensor.bytes, word_of(reg.name), reg.bytes));
}

// A variable's value and its next one are one thing at two times: in one place, of one type.
void check_variable(const PlanRegister& reg, const std::vector<const PlanTensor*>& tensors) {
  for (auto* tensor : tensors) {
    auto &a = *tensors[0], &b = *tensor;
    if (!(a.type == b.type) || a.sbp != b.sbp || a.layout != b.layout || a.offset != b.offset)
      refuse(fmt::format("the variable {} is {} {} and becomes {} {}, of another type or in another place",
                         word_of(reg.variable), word_of(a.name), text_of(a.type) + text_of(a.sbp), word_of(b.name),
                         text_of(b.type) + text_of(b.sbp)));
  }
}

void check_register(const Plan& plan, const std::vector<bool>& views, int r) {
  auto& reg = plan.registers[size_t(r)];
  aligned(reg.bytes, "a slot of the register " + word_of(reg.name));
  std::vector<const PlanTensor*> tensors;
  for (int t : reg.tensors) {
    auto& tensor = plan.tensors[size_t(t)];
    if (tensor.reg != r)
      refuse(fmt::format("the register {} holds {}, which lies elsewhere", word_of(reg.name), word_of(tensor.name)));
    if (tensor.bytes > 0 && !views[size_t(t)]) tensors.push_back(&tensor);
  }
  if (!reg.variable.empty()) return check_variable(reg, tensors);
  if (reg.producer >= 0 && !plan.actors[size_t(reg.producer)].ops.empty()) return;  // the chain's lives tell
  std::stable_sort(tensors.begin(), tensors.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    auto &a = *tensors[i - 1], &b = *tensors[i];
    if (overlap(a.offset, a.bytes, b.offset, b.bytes))
      refuse(
          fmt::format("{} and {} share bytes in the register {}", word_of(a.name), word_of(b.name), word_of(reg.name)));
  }
}

// By tensor: it is another one's memory, which the op that makes it does not touch.
std::vector<bool> views_of(const Plan& plan, const OpTable& ops) {
  std::vector<bool> views(plan.tensors.size());
  for (auto& actor : plan.actors)
    for (auto& op : actor.ops)
      if (is_view(plan, ops, op)) views[size_t(op.out[0])] = true;
  return views;
}

}  // namespace
}  // namespace sluice::memory

namespace sluice {

void verify_memory(const Plan& plan, const OpTable& ops) {
  verify_structure(plan);
  for (size_t c = 0; c < plan.classes.size(); ++c) memory::check_arena(plan, int(c));
  for (auto& tensor : plan.tensors) memory::check_tensor(plan, tensor);
  auto views = memory::views_of(plan, ops);
  for (size_t r = 0; r < plan.registers.size(); ++r) memory::check_register(plan, views, int(r));
  for (auto& actor : plan.actors) memory::check_lives(plan, ops, views, actor);
}

}  // namespace sluice
