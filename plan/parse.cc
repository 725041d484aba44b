// SPDX-License-Identifier: Apache-2.0
// Reads the text form that text.cc prints.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.h"
#include "plan/line.h"
#include "plan/plan.h"
#include "plan/verify.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 3> phase_names{"forward", "backward", "optimizer"};

[[noreturn]] void bad(std::string why) { throw Error(Code::value, std::move(why)); }

std::pair<std::string_view, std::string_view> halves(std::string_view text, size_t at, size_t width, const char* form) {
  if (at == text.npos) bad(fmt::format("{} is not of the form {}", quote(text.substr(0, 80)), form));
  return {text.substr(0, at), text.substr(at + width)};
}

Mesh parse_mesh(std::string_view text) {
  auto [rest, first] = halves(text, text.rfind('@'), 1, "name(axis=size)@rank");
  size_t open = 0;
  if (rest.starts_with('"')) {  // the name may hold anything
    for (open = 1; open < rest.size() && rest[open] != '"'; ++open) open += rest[open] == '\\';
    ++open;
  } else {
    open = std::min(rest.find('('), rest.size());
  }
  if (open >= rest.size()) bad("a mesh has no axes: write name(axis=size)@rank");
  Mesh mesh{parse_word(rest.substr(0, open)), {}, parse_int(first)};
  for (auto item : split_list(unwrap(rest.substr(open), '(', ')'))) {
    auto [name, size] = halves(item, item.rfind('='), 1, "axis=size");
    mesh.axes.push_back({parse_word(name), parse_int(size)});
  }
  return mesh;
}

LogicalType parse_type(std::string_view text) {
  size_t open = std::min(text.find('['), text.size());
  auto dtype = parse_dtype(text.substr(0, open));
  if (!dtype) bad(fmt::format("{} is no type: write float32[128b,784]", quote(text.substr(0, 80))));
  return {*dtype, std::get<Shape>(parse_attr("shape" + std::string(text.substr(open))))};
}

std::vector<Port> parse_ports(std::string_view text) {
  std::vector<Port> ports;
  for (auto item : split_list(unwrap(text, '[', ']'))) {
    size_t star = std::min(item.find('*'), item.size());
    ports.push_back(
        {parse_index(item.substr(0, star), 'r'), star < item.size() ? parse_int(item.substr(star + 1)) : 1});
  }
  return ports;
}

Attrs parse_attrs(std::string_view text) {
  Attrs attrs;
  for (auto item : split_list(unwrap(text, '{', '}'))) {
    auto parts = split_list(item, '=');
    size_t equals = parts.size() < 2 ? item.npos : parts[0].size();
    auto [name, value] = halves(item, equals, 1, "name=value");
    attrs.push_back({parse_word(name), parse_attr(value)});
  }
  return attrs;
}

Phase parse_phase(std::string_view text) {
  auto found = std::find(phase_names.begin(), phase_names.end(), text);
  if (found == phase_names.end()) bad(fmt::format("{} is no phase", quote(text.substr(0, 80))));
  return Phase(found - phase_names.begin());
}

// What carries an index: lines may come in any order, and every index must stand once.
template <class T>
class Numbered {
 public:
  T& add(int index, T value) { return items_.emplace_back(index, std::move(value)).second; }
  T& last(std::string_view what) {
    if (items_.empty()) bad(fmt::format("there is no {} before this line", what));
    return items_.back().second;
  }
  std::vector<T> in_order(std::string_view what) {
    std::stable_sort(items_.begin(), items_.end(), [](auto& a, auto& b) { return a.first < b.first; });
    std::vector<T> values;
    for (auto& [index, value] : items_) {
      if (size_t(index) != values.size())
        bad(fmt::format("{} {} is missing or stands twice", what, std::min(values.size(), size_t(index))));
      values.push_back(std::move(value));
    }
    return values;
  }

 private:
  std::vector<std::pair<int, T>> items_;
};

class Parser {
 public:
  Plan run(std::string_view text) {
    int number = 0;
    for (size_t begin = 0; begin < text.size();) {
      size_t end = std::min(text.find('\n', begin), text.size());
      ++number;
      try {
        line(text.substr(begin, end - begin));
      } catch (const Error& error) {
        throw error.at({"plan", number});
      }
      begin = end + 1;
    }
    try {
      finish();
    } catch (const Error& error) {
      throw error.at({"plan", 0});
    }
    return std::move(plan_);
  }

 private:
  void line(std::string_view text) {
    if (size_t first = text.find_first_not_of(' '); first == text.npos || text[first] == '#') return;
    Line line(text);
    auto head = line.word("a keyword");
    if (head == "plan")
      plan(line);
    else if (head == "note")
      note(line);
    else if (head == "source")
      source(line);
    else if (head == "class")
      cls(line);
    else if (head == "stream")
      stream(line);
    else if (head == "register")
      reg(line);
    else if (head == "tensor")
      tensor(line);
    else if (head == "actor")
      actor(line);
    else if (head == "op")
      op(line);
    else if (head == "move")
      move(line);
    else
      bad(fmt::format("{} starts no line of a plan", quote(head.substr(0, 80))));
    line.done();
  }

  void plan(Line& line) {
    if (seen_plan_) bad("the plan's line stands twice");
    seen_plan_ = true;
    plan_.job = parse_word(line.word("the job's name"));
    auto seed = line.field("seed").value_or("0");
    auto [end, failure] = std::from_chars(seed.data(), seed.data() + seed.size(), plan_.seed);
    if (failure != std::errc{} || end != seed.data() + seed.size()) bad(quote(seed.substr(0, 80)) + " is no seed");
    plan_.micro_batches = line.small("micro", 1);
    plan_.batch_bound = line.integer("batch", 0);
    plan_.exact = line.flag("exact");
    if (auto device = line.field("device")) plan_.device = parse_word(*device);
  }

  void note(Line& line) {
    auto key = parse_word(line.word("the note's key"));
    plan_.notes.emplace_back(std::move(key), parse_word(line.word("the note's text")));
  }

  void source(Line& line) {
    Source source{parse_word(line.word("the reader")), {}, !line.flag("fixed")};
    if (auto attrs = braces(line)) source.attrs = parse_attrs(*attrs);
    plan_.sources.push_back(std::move(source));
  }

  void cls(Line& line) {
    if (parse_int(line.word("the class's index")) != int(plan_.classes.size())) bad("classes must stand in order");
    PlanClass cls{.name = parse_word(line.word("the class's name"))};
    auto mesh = line.field("mesh");
    if (!mesh) bad("a class has no mesh=");
    cls.mesh = parse_mesh(*mesh);
    cls.pool = line.text("pool");
    cls.arena_bytes = line.integer("arena", 0);
    cls.arena_bytes_lower_bound = line.integer("least", 0);
    cls.stage = line.small("stage", 0);
    plan_.classes.push_back(std::move(cls));
  }

  int current() const {
    if (plan_.classes.empty()) bad("there is no class before this line");
    return int(plan_.classes.size()) - 1;
  }

  void stream(Line& line) {
    auto& streams = plan_.classes[size_t(current())].streams;
    auto name = parse_word(line.word("the stream's name"));
    streams.push_back({std::move(name), line.integer("at", 0), line.integer("bytes", 0)});
  }

  void reg(Line& line) {
    int index = parse_index(line.word("the register's index"), 'r');
    PlanRegister reg{.name = parse_word(line.word("the register's name")), .cls = current()};
    reg.bytes = line.integer("bytes", 0);
    reg.offset = line.integer("at", 0);
    reg.slots = line.small("slots", 1);
    reg.initial = line.small("full", 0);
    if (auto by = line.field("by")) reg.producer = parse_index(*by, 'a');
    reg.variable = line.text("variable");
    if (auto holds = line.field("holds")) reg.tensors = parse_indices(unwrap(*holds, '[', ']'), '%');
    registers_.add(index, std::move(reg));
  }

  void tensor(Line& line) {
    int index = parse_index(line.word("the tensor's index"), '%');
    PlanTensor tensor{.name = parse_word(line.word("the tensor's name")), .cls = current()};
    tensor.type = parse_type(line.word("the tensor's type"));
    tensor.sbp = parse_nd_sbp(line.word("the tensor's SBP"));
    if (auto layout = line.field("layout")) tensor.layout = parse_word(*layout);
    if (auto in = line.field("in")) tensor.reg = parse_index(*in, 'r');
    tensor.offset = line.integer("at", 0);
    tensor.bytes = line.integer("bytes", 0);
    tensors_.add(index, std::move(tensor));
  }

  void actor(Line& line) {
    int index = parse_index(line.word("the actor's index"), 'a');
    PlanActor actor{.name = parse_word(line.word("the actor's name")),
                    .kind = parse_word(line.word("the actor's kind"))};
    actor.cls = current();
    actor.stream = line.small("stream", 0);
    actor.key = line.integer("key", 0);
    actor.firings = line.small("firings", 1);
    if (auto in = line.field("in")) actor.in = parse_ports(*in);
    if (auto out = line.field("out")) actor.out = parse_ports(*out);
    if (auto phase = line.field("phase")) actor.phase = parse_phase(*phase);
    actor.source = line.small("source", -1);
    if (auto names = line.field("names"))
      for (auto name : split_list(unwrap(*names, '[', ']'))) actor.names.push_back(parse_word(name));
    if (auto tensors = line.field("tensors")) actor.tensors = parse_indices(unwrap(*tensors, '[', ']'), '%');
    actors_.add(index, std::move(actor));
  }

  void op(Line& line) {
    PlanOp op{.op = parse_word(line.word("the op")), .name = parse_word(line.word("the op's name"))};
    auto operands = line.word("the operands");
    auto [in, out] = halves(operands, operands.find("->"), 2, "(%0,%1)->(%2)");
    op.in = parse_indices(unwrap(in, '(', ')'), '%');
    op.out = parse_indices(unwrap(out, '(', ')'), '%');
    if (auto attrs = braces(line)) op.attrs = parse_attrs(*attrs);
    if (auto work = line.field("work")) {
      auto [offset, bytes] = halves(*work, work->find('+'), 1, "offset+bytes");
      op.workspace_offset = parse_integer(offset);
      op.workspace_bytes = parse_integer(bytes);
    }
    if (auto place = line.field("line")) {
      auto [file, number] = halves(*place, place->rfind(':'), 1, "file:line");
      op.place = {parse_word(file), parse_int(number)};
    }
    actors_.last("actor").ops.push_back(std::move(op));
  }

  void move(Line& line) {
    PlanMove move{.move = parse_word(line.word("the move"))};
    auto ends = line.word("its tensors");
    auto [from, to] = halves(ends, ends.find("->"), 2, "%0->%1");
    move.from = parse_index(from, '%');
    move.to = parse_index(to, '%');
    actors_.last("actor").moves.push_back(std::move(move));
  }

  static std::optional<std::string_view> braces(Line& line) { return line.starting_with('{'); }

  void finish() {
    if (!seen_plan_) bad("the text has no line that starts with plan");
    plan_.tensors = tensors_.in_order("tensor");
    plan_.registers = registers_.in_order("register");
    plan_.actors = actors_.in_order("actor");
    verify_structure(plan_);
  }

  Plan plan_;
  bool seen_plan_ = false;
  Numbered<PlanTensor> tensors_;
  Numbered<PlanRegister> registers_;
  Numbered<PlanActor> actors_;
};

}  // namespace

Plan parse_plan(std::string_view text) { return Parser().run(text); }

}  // namespace sluice
