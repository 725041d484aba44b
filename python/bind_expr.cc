// SPDX-License-Identifier: Apache-2.0
// Ops, dims, expressions, and their evaluation.
#include <fmt/format.h>

#include <list>

#include "python/convert.h"

namespace sluice {
namespace {

// ---- ops -----------------------------------------------------------------------------------------------------------

std::vector<std::string> input_names(const OpDef& op) {
  std::vector<std::string> names;
  std::string_view rest = op.inputs;
  while (!rest.empty()) {
    size_t end = std::min(rest.find(','), rest.size());
    names.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

constexpr std::string_view kind_names[] = {"bool", "int", "float", "str", "ints", "shape", "dtype"};

nb::object default_of(const AttrDef& def) {
  if (def.default_text.empty()) return nb::none();
  AttrValue value = parse_attr(def.default_text);
  if (auto* v = std::get_if<bool>(&value)) return nb::cast(*v);
  if (auto* v = std::get_if<double>(&value)) return nb::cast(*v);
  if (auto* v = std::get_if<std::string>(&value)) return nb::cast(*v);
  if (auto* v = std::get_if<std::vector<int64_t>>(&value)) return nb::tuple(nb::cast(*v));
  if (auto* v = std::get_if<Shape>(&value)) return nb::tuple(nb::cast(sizes_of(*v)));
  if (auto* v = std::get_if<DType>(&value)) return nb::cast(std::string(name_of(*v)));
  int64_t integer = std::get<int64_t>(value);
  return def.kind == AttrDef::real ? nb::cast(double(integer)) : nb::cast(integer);
}

// (name, kind, doc, required, default)
nb::list attrs_of(const OpDef& op) {
  nb::list result;
  for (auto& def : op.attrs)
    result.append(nb::make_tuple(std::string(def.name), std::string(kind_names[def.kind]), std::string(def.doc),
                                 def.default_text.empty(), default_of(def)));
  return result;
}

nb::list states_of(const OpDef& op) {
  nb::list result;
  for (auto& state : op.states) result.append(std::string(state.name));
  return result;
}

void bind_ops(nb::module_& m) {
  nb::class_<OpDef>(m, "Op", "One op of the table.")
      .def_prop_ro("name", [](const OpDef& op) { return std::string(op.name); })
      .def_prop_ro("doc", [](const OpDef& op) { return std::string(op.doc); })
      .def_prop_ro("inputs", input_names)
      .def_prop_ro("attrs", attrs_of)
      .def_prop_ro("states", states_of)
      .def_prop_ro("random", [](const OpDef& op) { return op.random; })
      .def_prop_ro("hidden", [](const OpDef& op) { return op.hidden; })
      .def_prop_ro("method", [](const OpDef& op) { return op.method; })
      .def_prop_ro("has_grad", [](const OpDef& op) { return op.grad != nullptr; });
  nb::class_<TableSet>(m, "Tables", "Every constant table, with those of plug-ins.")
      .def("__init__",
           [](TableSet* self, std::vector<std::string> plugins) {
             with_files([&] { return new (self) TableSet(std::move(plugins)); });
           })
      .def_prop_ro("plugins", [](const TableSet& self) { return self.plugins; })
      .def("ops", [](const TableSet& self) {
        nb::list result;
        for (auto* op : self.tables.ops.all()) result.append(nb::cast(op, nb::rv_policy::reference));
        return result;
      });
}

// ---- dims ----------------------------------------------------------------------------------------------------------

Dim times(const Dim& dim, int64_t factor) {
  if (factor <= 0) throw Error(Code::value, fmt::format("a dim times {}", factor));
  int64_t size = 0;
  if (__builtin_mul_overflow(dim.size, factor, &size)) throw Error(Code::value, "a dim overflows");
  return {size, dim.sym, dim.sym == fixed_sym ? 1 : dim.granule * factor};
}

Dim over(const Dim& dim, int64_t factor) {
  if (factor <= 0 || dim.granule % factor != 0)
    throw Error(Code::value, fmt::format("{} is no multiple of {} for every batch", text_of(Shape{dim}), factor));
  return {dim.size / factor, dim.sym, dim.granule / factor};
}

void bind_dims(nb::module_& m) {
  nb::class_<Dim>(m, "Dim", "A dim whose size is known only when a batch arrives. It may be scaled, not read.")
      .def("__mul__", times)
      .def("__rmul__", times)
      .def("__floordiv__", over)
      .def("__eq__", [](const Dim& a, nb::handle b) { return nb::isinstance<Dim>(b) && a == nb::cast<Dim>(b); })
      .def("__hash__", [](const Dim& d) { return d.size * 31 + d.granule; })
      .def("__repr__", [](const Dim& d) { return text_of(Shape{d}).substr(1, text_of(Shape{d}).size() - 2); })
      .def("__index__", [](const Dim& d) -> int64_t {
        throw Error(Code::type,
                    fmt::format("the size of a batch dim ({}) is known only when a batch arrives", text_of(Shape{d})),
                    {}, "use mean() for averages, -1 or the dim itself in reshape");
      });
  m.def("batch_dim", [](int64_t bound) { return Dim{bound, batch_sym, 1}; });
}

nb::tuple dims_of(const Expr& expr) {
  nb::list result;
  for (auto& dim : expr.type().shape) {
    if (dim.sym == fixed_sym)
      result.append(dim.size);
    else
      result.append(nb::cast(dim));
  }
  return nb::tuple(result);
}

// ---- expressions ---------------------------------------------------------------------------------------------------

// Cells are Python objects: kept alive by the node, which may die on any thread.
std::shared_ptr<void> cell_from(nb::object cell) {
  PyObject* raw = cell.release().ptr();
  return {raw, [](void* p) {
            nb::gil_scoped_acquire lock;
            Py_DECREF(static_cast<PyObject*>(p));
          }};
}

std::vector<Expr> apply(const TableSet& set, const std::string& op, const std::vector<Expr>& in, const nb::dict& attrs,
                        const std::string& file, int line, std::string name) {
  Place place{file, line};
  try {
    return Expr::apply(set.tables.ops, op, in, attrs_from(set.tables.ops.at(op), attrs), place, std::move(name));
  } catch (const Error& error) {
    throw error.at(place);
  }
}

nb::list cells_of(const std::vector<Expr>& exprs) {
  nb::list result;
  for (auto& expr : variables_of(exprs))
    result.append(nb::make_tuple(expr, nb::borrow(static_cast<PyObject*>(expr.node().cell.get()))));
  return result;
}

nb::object value_of(const Expr& expr) {
  auto value = expr.value();
  return value ? numpy_array(value) : nb::none();
}

void bind_exprs(nb::module_& m) {
  constexpr static std::string_view kinds[] = {"op", "constant", "scalar", "input", "variable"};
  nb::class_<Expr>(m, "Expr", "A lazy tensor.")
      .def_static(
          "constant",
          [](const AnyArray& array) { return Expr::constant(std::make_shared<const HostArray>(host_array(array))); })
      .def_static("scalar",
                  [](double value, const std::string& dtype) { return Expr::scalar(value, dtype_named(dtype)); })
      .def_static("input", [](std::string name, const std::string& dtype,
                              nb::object dims) { return Expr::input(std::move(name), type_from(dtype, dims)); })
      .def_static("variable", [](const std::string& dtype, nb::object dims,
                                 nb::object cell) { return Expr::variable(type_from(dtype, dims), cell_from(cell)); })
      .def_prop_ro("dtype", [](const Expr& e) { return std::string(name_of(e.type().dtype)); })
      .def_prop_ro("shape", dims_of)
      .def_prop_ro("type_text", [](const Expr& e) { return text_of(e.type()); })
      .def_prop_ro("kind", [](const Expr& e) { return std::string(kinds[e.node().kind]); })
      .def_prop_ro("op", [](const Expr& e) { return e.node().op_name; })
      .def_prop_ro("name", [](const Expr& e) { return e.node().name; })
      .def_prop_ro("place", [](const Expr& e) { return std::pair(e.node().place.file, e.node().place.line); })
      .def_prop_ro("inputs", [](const Expr& e) { return e.node().in; })
      .def_prop_ro("is_concrete", [](const Expr& e) { return is_concrete(e); })
      .def("same", [](const Expr& a, const Expr& b) { return &a.node() == &b.node() && a.output() == b.output(); })
      .def("value", value_of, nb::sig("def value(self) -> typing.Any"))
      .def("clear_value", [](const Expr& e) { e.set_value(nullptr); })
      .def("set_value", [](const Expr& e, const AnyArray& array) {
        e.set_value(std::make_shared<const HostArray>(host_array(array)));
      });
  m.def("apply", apply);
  m.def("cells_of", cells_of);
  m.def("named_exprs", [](const std::vector<Expr>& outputs) {
    std::map<std::string, Expr> result;
    for (auto& [name, expr] : named_exprs(outputs)) result[name] = expr;
    return result;
  });
  m.def("gradients", [](const TableSet& set, const Expr& loss, const std::vector<Expr>& wrt) {
    nb::list result;
    for (auto& expr : gradients(set.tables.ops, loss, wrt)) {
      if (expr)
        result.append(nb::cast(expr));
      else
        result.append(nb::none());
    }
    return result;
  });
}

// ---- evaluation ----------------------------------------------------------------------------------------------------

// Plans of evaluated expressions, by the text of their graph: a loop that makes the same graph plans once.
class Evaluator {
 public:
  Evaluator(TableSetPtr tables, size_t capacity) : tables_(std::move(tables)), capacity_(capacity) {}

  // Gives every expression a value. `keep`: keeps the inputs of what is evaluated (while differentiating).
  void evaluate(const std::vector<Expr>& exprs, uint64_t seed, int64_t step, bool keep) {
    GraphRequest request;
    std::vector<Expr> wanted;
    for (auto& expr : exprs)
      for (size_t o = 0; !expr.value() && o < expr.node().types.size(); ++o) wanted.push_back(expr.sibling(int(o)));
    if (wanted.empty()) return;
    for (size_t i = 0; i < wanted.size(); ++i) request.outputs.push_back({fmt::format("o{}", i), wanted[i]});
    GraphResult result = to_graph(tables_->tables.ops, request);
    auto outputs = run(result, seed, step);
    for (size_t i = 0; i < wanted.size(); ++i) {
      auto at = outputs.find(fmt::format("o{}", i));
      check(at != outputs.end(), "a step lacks an output that was asked for");
      wanted[i].set_value(std::make_shared<const HostArray>(std::move(at->second)));
    }
    for (auto& expr : wanted)
      if (!keep) expr.drop_inputs();
  }

  size_t plans() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Running> running;
  };

  std::map<std::string, HostArray> run(const GraphResult& result, uint64_t seed, int64_t step) {
    auto running = find(result.graph, seed);
    std::map<std::string, HostArray> feed;
    for (auto& [name, value] : result.constants) feed[name] = *value;
    nb::gil_scoped_release unlocked;
    std::lock_guard lock(running->mutex);
    auto& session = running->session;
    session.set_step(step);
    if (!feed.empty()) session.feed(std::move(feed));
    session.grant(1);
    while (true)
      if (auto done = session.wait_step(std::chrono::seconds(1))) {
        session.drain();
        return std::move(done->outputs);
      }
  }

  std::shared_ptr<Running> find(const Graph& graph, uint64_t seed) {
    std::string key = fmt::format("{}\n{}", seed, text_of(graph));
    for (auto& node : graph.nodes) key += node.place.text() + "\n";  // an error names the line
    for (auto at = entries_.begin(); at != entries_.end(); ++at)
      if (at->key == key) {
        entries_.splice(entries_.begin(), entries_, at);
        return at->running;
      }
    Job job;
    job.name = "expression";
    job.graph = graph;
    job.seed = seed;
    job.training = false;
    std::shared_ptr<Running> running;
    {
      nb::gil_scoped_release unlocked;
      Config config = default_config();
      config.plugins = tables_->plugins;
      running = std::make_shared<Running>(std::move(job), std::move(config), tables_);
    }
    entries_.push_front({key, running});
    while (entries_.size() > capacity_) entries_.pop_back();
    return running;
  }

  TableSetPtr tables_;
  size_t capacity_;
  std::list<Entry> entries_;  // the most recently used first
};

}  // namespace

void bind_expr(nb::module_& m) {
  bind_ops(m);
  bind_dims(m);
  bind_exprs(m);
  nb::class_<Evaluator>(m, "Evaluator", "Evaluates expressions; keeps the plans it made.")
      .def(nb::init<TableSetPtr, size_t>())
      .def("evaluate", &Evaluator::evaluate)
      .def_prop_ro("plans", &Evaluator::plans);
}

}  // namespace sluice
