// SPDX-License-Identifier: Apache-2.0
#include "plan/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plan/summary.h"

namespace sluice {
namespace {

constexpr size_t rows_max = 16;  // of one table; what follows is summed up in one line

// Columns as wide as their widest cell. A head that starts with '>' sets its column to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) {
    for (auto& cell : head) {
      right_.push_back(cell.starts_with('>'));
      if (right_.back()) cell.erase(0, 1);
    }
    rows_.push_back(std::move(head));
  }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  std::string text() const {
    if (rows_.size() == 1) return {};
    std::vector<size_t> width(rows_[0].size());
    for (auto& row : rows_)
      for (size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
    std::string text;
    for (auto& row : rows_) {
      std::string line;
      for (size_t c = 0; c < row.size(); ++c)
        line += right_[c] ? fmt::format("  {:>{}}", row[c], width[c]) : fmt::format("  {:<{}}", row[c], width[c]);
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text + "\n";
  }

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

std::string ranks_text(const Mesh& mesh) {
  int last = mesh.first_rank + mesh.size() - 1;
  return last == mesh.first_rank ? fmt::format("rank {}", last) : fmt::format("ranks {}-{}", mesh.first_rank, last);
}

std::string axes_text(const Mesh& mesh) {
  std::string text;
  for (auto& axis : mesh.axes) text += fmt::format("{}{}={}", text.empty() ? "" : " ", axis.name, axis.size);
  return text;
}

std::string head(const Plan& plan) {
  std::string text =
      fmt::format("plan {}: {} {} device{}", plan.job, plan.ranks(), plan.device, plan.ranks() == 1 ? "" : "s");
  if (plan.batch_bound > 0) text += fmt::format(", batch {}", plan.batch_bound);
  if (plan.micro_batches > 1) text += fmt::format(" in {} micro-batches", plan.micro_batches);
  return text + fmt::format(", seed {}, hash {:016x}\n\n", plan.seed, hash_of(plan));
}

std::string classes(const Plan& plan) {
  Table table({"class", "where", "axes", ">stage", "actors", ">memory", ">at least"});
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    auto& cls = plan.classes[c];
    std::string actors;
    for (auto& [kind, count] : actors_by_kind(plan, int(c)))
      actors += fmt::format("{}{} {}", actors.empty() ? "" : ", ", count, kind);
    table.add({cls.name, ranks_text(cls.mesh), axes_text(cls.mesh), std::to_string(cls.stage), actors,
               bytes_text(double(cls.arena_bytes)), bytes_text(double(cls.arena_bytes_lower_bound))});
  }
  return table.text();
}

std::string more(size_t count, std::string_view what, double bytes) {
  if (count <= rows_max) return {};
  return fmt::format("  ... and {} more {}{}\n\n", count - rows_max, what, bytes > 0 ? ", " + bytes_text(bytes) : "");
}

// The rest of a table goes below it, in the place of the empty line that ends it.
std::string with_rest(std::string table, const std::string& rest) {
  if (!rest.empty()) table.pop_back();
  return table + rest;
}

std::string chains(const Plan& plan) {
  constexpr std::array<std::string_view, 3> phases{"forward", "backward", "optimizer"};
  Table table({"chain", "class", "phase", ">ops", ">firings a step"});
  size_t count = 0;
  for (auto& actor : plan.actors)
    if (!actor.ops.empty() && count++ < rows_max)
      table.add({actor.name, plan.classes[size_t(actor.cls)].name, std::string(phases[size_t(actor.phase)]),
                 std::to_string(actor.ops.size()), std::to_string(actor.firings)});
  return with_rest(table.text(), more(count, "chains", 0));
}

// Moves of one kind between the same placements are one row.
std::string moves(const Plan& plan) {
  struct Row {
    std::vector<std::string> cells;
    int count = 0;
    MoveCost step;
  };
  std::vector<Row> rows;
  for (auto& move : moves_of(plan)) {
    auto cls = [&](const PlanTensor* tensor) { return plan.classes[size_t(tensor->cls)].name; };
    std::string where = move.from->cls == move.to->cls ? cls(move.to) : cls(move.from) + " -> " + cls(move.to);
    std::vector<std::string> cells{move.move->move, where, text_of(move.from->sbp) + " -> " + text_of(move.to->sbp)};
    auto row = std::find_if(rows.begin(), rows.end(), [&](auto& row) { return row.cells == cells; });
    if (row == rows.end()) row = rows.insert(rows.end(), {cells, 0, {}});
    ++row->count;
    row->step.bytes += move.step.bytes;
    row->step.messages += move.step.messages;
  }
  std::stable_sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.step.bytes > b.step.bytes; });
  Table table({"move", "class", "from -> to", ">tensors", ">messages a step", ">bytes a step"});
  double rest = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    auto& row = rows[r];
    if (r >= rows_max)
      rest += row.step.bytes;
    else
      table.add({row.cells[0], row.cells[1], row.cells[2], std::to_string(row.count),
                 fmt::format("{:.0f}", row.step.messages), bytes_text(row.step.bytes)});
  }
  return with_rest(table.text(), more(rows.size(), "kinds of moves", rest));
}

std::string registers(const Plan& plan) {
  std::vector<const PlanRegister*> regs;
  for (auto& reg : plan.registers)
    if (reg.bytes > 0) regs.push_back(&reg);
  auto bytes = [](const PlanRegister* reg) { return reg->bytes * reg->slots; };
  std::stable_sort(regs.begin(), regs.end(), [&](auto* a, auto* b) { return bytes(a) > bytes(b); });
  Table table({"register", "class", "use", ">slots", ">bytes a slot", ">bytes"});
  double rest = 0;
  for (size_t r = 0; r < regs.size(); ++r) {
    auto& reg = *regs[r];
    if (r >= rows_max)
      rest += double(bytes(&reg));
    else
      table.add({reg.name, plan.classes[size_t(reg.cls)].name,
                 reg.variable.empty() ? "data"
                 : reg.producer < 0   ? "constant"
                                      : "variable",
                 std::to_string(reg.slots), bytes_text(double(reg.bytes)), bytes_text(double(bytes(&reg)))});
  }
  return with_rest(table.text(), more(regs.size(), "registers", rest));
}

std::string notes(const Plan& plan) {
  std::string text;
  for (size_t n = 0; n < plan.notes.size() && n < rows_max; ++n)
    text += fmt::format("  {}: {}\n", plan.notes[n].first, plan.notes[n].second);
  return text.empty() ? text : "notes\n" + with_rest(text + "\n", more(plan.notes.size(), "notes", 0));
}

}  // namespace

std::string bytes_text(double bytes) {
  constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.size(); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string show(const Plan& plan) {
  std::string text = head(plan) + classes(plan) + chains(plan) + moves(plan) + registers(plan) + notes(plan);
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace sluice
