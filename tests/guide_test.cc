// SPDX-License-Identifier: Apache-2.0
// The guide's pages of ops, moves, passes and actor kinds are what their own aggregates say. To renew the pages:
//   SLUICE_WRITE_GUIDE=1 build/release/guide_test
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "comm/move.h"
#include "kernels/device/device.h"
#include "kernels/op.h"
#include "planner/pass.h"
#include "protocol/actor.h"

namespace sluice {
namespace {

constexpr std::string_view kinds_of_attr[] = {"boolean", "integer", "real", "text", "integers", "shape", "dtype"};

std::string traits_of(const OpDef& op) {
  std::string traits;
  auto add = [&](bool holds, std::string_view what) {
    if (holds) traits += fmt::format("{}{}", traits.empty() ? "" : ", ", what);
  };
  add(!op.states.empty(), "optimizer");
  add(op.random, "random");
  add(op.tile.f32 != nullptr, "element-wise");
  add(op.view != ViewKind::none, "a view where it can be");
  add(op.grad != nullptr, "differentiable");
  add(op.hidden, "no Python function");
  return traits.empty() ? "" : fmt::format("\n*{}*\n", traits);
}

std::string page_of_ops() {
  std::string page = "# Ops\n\nWritten from `kernels/ops/` by `tests/guide_test.cc`.\n";
  for (auto* op : builtin_ops()) {
    page += fmt::format("\n## {}({})\n\n{}\n{}", op->name, op->inputs, op->doc, traits_of(*op));
    if (!op->attrs.empty()) page += "\n";
    for (auto& attr : op->attrs)
      page += fmt::format("- `{}` ({}{}): {}\n", attr.name, kinds_of_attr[attr.kind],
                          attr.default_text.empty() ? ", required" : fmt::format(", default {}", attr.default_text),
                          attr.doc);
  }
  return page;
}

template <class Table>
void add_section(std::string& page, std::string_view title, std::string_view folder, const Table& table) {
  page += fmt::format("\n## {}\n\nOne file each in `{}`.\n\n", title, folder);
  for (auto* def : table) page += fmt::format("- `{}`: {}\n", def->name, def->doc);
}

std::string page_of_parts() {
  std::string page = "# Moves, passes, actor kinds and devices\n\nWritten by `tests/guide_test.cc`.\n";
  add_section(page, "Moves", "comm/moves/", builtin_moves());
  add_section(page, "Passes", "planner/passes/", builtin_passes());
  add_section(page, "Actor kinds", "protocol/kinds/", builtin_kinds());
  add_section(page, "Devices", "kernels/device/", builtin_devices());
  return page;
}

void expect_page(const std::string& path, const std::string& page) {
  if (std::getenv("SLUICE_WRITE_GUIDE")) std::ofstream(path) << page;
  std::ifstream in(path);
  ASSERT_TRUE(in.good()) << path << ": run the test in the project's folder";
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(in)), {}), page) << path << " is out of date";
}

TEST(Guide, Ops) { expect_page("docs/guide/ops.md", page_of_ops()); }
TEST(Guide, Parts) { expect_page("docs/guide/parts.md", page_of_parts()); }

TEST(Guide, EverythingIsDocumented) {
  for (auto* op : builtin_ops()) {
    EXPECT_GE(op->doc.size(), 10u) << op->name;
    EXPECT_TRUE(op->doc.ends_with(".")) << op->name;
    for (auto& attr : op->attrs) EXPECT_GE(attr.doc.size(), 5u) << op->name << "." << attr.name;
  }
}

}  // namespace
}  // namespace sluice
