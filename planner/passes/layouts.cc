// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "planner/items.h"

namespace sluice::passes {
namespace {

bool is_next(const PlanState& state, int tensor) {
  return std::count(state.variable_next.begin(), state.variable_next.end(), tensor) > 0;
}

bool takes_col(const PlanState& state, const Item& reader, int tensor) {
  if (reader.kind != Item::Kind::op) return false;
  auto& op = op_of(state, reader);
  if (op.view == ViewKind::swap && !is_next(state, reader.out[0])) return true;  // swapped back, it is a row again
  for (size_t i = 0; i < reader.in.size(); ++i)
    if (reader.in[i] == tensor && !((op.col_mask >> i) & 1)) return false;
  return true;
}

}  // namespace

static void run(PlanState& state) {
  auto readers = readers_of(state);
  auto& tensors = state.plan.tensors;
  for (auto& item : state.items) {
    if (item.kind != Item::Kind::op) continue;
    ViewKind view = op_of(state, item).view;
    if (view == ViewKind::none) continue;
    int in = item.in[0], out = item.out[0];
    if (is_next(state, out)) continue;  // it lies in its variable's register
    bool col = tensors[size_t(in)].layout == "col";
    if (view == ViewKind::swap) col = !col;
    bool fits = !col || std::all_of(readers[size_t(out)].begin(), readers[size_t(out)].end(),
                                    [&](int reader) { return takes_col(state, state.items[size_t(reader)], out); });
    if (!fits || (view == ViewKind::same && col)) continue;
    tensors[size_t(out)].layout = col ? "col" : "row";
    state.root[size_t(out)] = state.root[size_t(in)];
  }
}

extern constinit const PassDef layouts{
    .name = "layouts",
    .doc =
        "Lets an op whose output is a view (a reshape, a transpose that its readers can read through) share its "
        "input's memory; elsewhere it stays a copy.",
    .run = run,
};

}  // namespace sluice::passes
