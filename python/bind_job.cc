// SPDX-License-Identifier: Apache-2.0
// Jobs, configs, plans and sessions.
#include <fmt/format.h>

#include "graph/job_file.h"
#include "plan/show.h"
#include "planner/planner.h"
#include "python/convert.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

// ---- configs -------------------------------------------------------------------------------------------------------

void bind_configs(nb::module_& m) {
  nb::class_<Config>(m, "Config", "A checked config.")
      .def_prop_ro("file", [](const Config& c) { return c.file; })
      .def_prop_ro("text", [](const Config& c) { return text_of(c); })
      .def("copy", [](const Config& c) { return c; })
      .def_prop_ro("devices", [](const Config& c) { return devices_of(c); })
      .def_prop_rw(
          "global_batch", [](const Config& c) { return c.global_batch.value; },
          [](Config& c, int64_t batch) {
            c.global_batch = {batch, {}};
          })
      .def_prop_ro("seed", [](const Config& c) { return c.seed.value; })
      .def_prop_rw(
          "plugins", [](const Config& c) { return c.plugins; },
          [](Config& c, std::vector<std::string> plugins) { c.plugins = std::move(plugins); });
  m.def("default_config", &default_config);
  m.def("load_config", [](const std::string& file) { return with_files([&] { return load_config(file); }); });
  m.def("parse_config", [](const std::string& text, const std::string& file) { return parse_config(text, file); });
}

// ---- jobs ----------------------------------------------------------------------------------------------------------

Attrs free_attrs(const nb::dict& values) {
  Attrs attrs;
  for (auto [key, value] : values) {
    std::string name = nb::cast<std::string>(key);
    if (nb::isinstance<nb::bool_>(value))
      attrs.push_back({name, nb::cast<bool>(value)});
    else if (nb::isinstance<nb::int_>(value))
      attrs.push_back({name, nb::cast<int64_t>(value)});
    else if (nb::isinstance<nb::float_>(value))
      attrs.push_back({name, nb::cast<double>(value)});
    else
      attrs.push_back({name, nb::cast<std::string>(value)});
  }
  return attrs;
}

using OutputArg = std::tuple<std::string, Expr>;
using InputArg = std::tuple<std::string, Expr, int, int>;
using VariableArg = std::tuple<std::string, Expr, bool>;
using SourceArg = std::tuple<std::string, nb::dict, bool>;

struct JobArgs {
  std::string name, loss, optimizer;
  nb::dict optimizer_attrs;
  int64_t batch_bound = 0;
  uint64_t seed = 0;
  bool training = false;
};

BuiltJob build_job(const TableSet& set, const std::vector<OutputArg>& outputs, const std::vector<InputArg>& inputs,
                   const std::vector<VariableArg>& variables, const std::vector<SourceArg>& sources, JobArgs args) {
  GraphRequest request;
  request.constants_fed = false;
  request.batch_bound = args.batch_bound;
  for (auto& [name, expr] : outputs) request.outputs.push_back({name, expr});
  for (auto& [name, expr, source, field] : inputs) request.inputs.push_back({name, expr, true, source, field});
  for (auto& [name, expr, trainable] : variables) request.variables.push_back({name, expr, trainable});
  GraphResult result = to_graph(set.tables.ops, request);
  BuiltJob built;
  built.constants = std::move(result.constants);
  built.job.name = args.name;
  built.job.graph = std::move(result.graph);
  for (auto& [reader, attrs, shuffle] : sources)
    built.job.graph.sources.push_back({reader, free_attrs(attrs), shuffle});
  for (auto& output : built.job.graph.outputs)
    if (output.name == args.loss) built.job.loss = output.tensor;
  built.job.optimizer = args.optimizer;
  if (!args.optimizer.empty()) {
    auto& op = set.tables.ops.at(args.optimizer);
    built.job.optimizer_attrs = complete_attrs(op, attrs_from(op, args.optimizer_attrs));
  }
  built.job.seed = args.seed;
  built.job.training = args.training;
  return built;
}

std::vector<std::string> tensor_names(const BuiltJob& built) {
  std::vector<std::string> names;
  for (auto& tensor : built.job.graph.tensors) names.push_back(tensor.name);
  return names;
}

void bind_jobs(nb::module_& m) {
  m.def("save_job", [](const BuiltJob& built, const std::string& path) {
    if (!built.constants.empty())
      throw Error(Code::value, "the model holds an array that is no parameter; a job file holds no values", {},
                  "make it an nn.Parameter with requires_grad=False");
    with_files([&] { save_job(built.job, path); });
  });
  nb::class_<BuiltJob>(m, "BuiltJob", "A graph with what to do with it.")
      .def_prop_ro("text", [](const BuiltJob& b) { return text_of(b.job.graph); })
      .def_prop_ro("training", [](const BuiltJob& b) { return b.job.training; })
      .def_prop_ro("tensor_names", tensor_names)
      .def_prop_ro("places", [](const BuiltJob& b) {
        std::map<std::string, std::pair<std::string, int>> places;
        for (auto& node : b.job.graph.nodes) places[node.name] = {node.place.file, node.place.line};
        return places;
      });
  m.def(
      "build_job",
      [](const TableSet& set, std::vector<OutputArg> outputs, std::vector<InputArg> inputs,
         std::vector<VariableArg> variables, std::vector<SourceArg> sources, std::string name, std::string loss,
         std::string optimizer, nb::dict optimizer_attrs, int64_t batch_bound, uint64_t seed, bool training) {
        return build_job(
            set, outputs, inputs, variables, sources,
            {std::move(name), std::move(loss), std::move(optimizer), optimizer_attrs, batch_bound, seed, training});
      },
      nb::arg("tables"), nb::arg("outputs"), nb::arg("inputs"), nb::arg("variables"), nb::arg("sources"),
      nb::arg("name"), nb::arg("loss"), nb::arg("optimizer"), nb::arg("optimizer_attrs"), nb::arg("batch_bound"),
      nb::arg("seed"), nb::arg("training"));
}

// ---- plans ---------------------------------------------------------------------------------------------------------

void bind_plans(nb::module_& m) {
  nb::class_<Plan>(m, "Plan", "Everything that will run.")
      .def_prop_ro("text", [](const Plan& p) { return text_of(p); })
      .def_prop_ro("hash", [](const Plan& p) { return fmt::format("{:016x}", hash_of(p)); })
      .def_prop_ro("json", [](const Plan& p) { return plan_json(p); })
      .def_prop_ro("summary", [](const Plan& p) { return show(p); })
      .def_prop_ro("ranks", &Plan::ranks);
  m.def("make_plan", [](const BuiltJob& built, const Config& config, const TableSet& set) {
    nb::gil_scoped_release unlocked;
    Plan plan = make_plan(built.job, config, {set.tables.ops, set.tables.moves});
    for (auto& [path, hash] : set.tables.plugins) plan.notes.push_back({"plugin " + path, hash});
    return plan;
  });
}

// ---- sessions ------------------------------------------------------------------------------------------------------

// Runs `f` on the session without the Python lock, one caller at a time.
template <class F>
auto unlocked(Running& running, F&& f) {
  nb::gil_scoped_release release;
  std::lock_guard lock(running.mutex);
  return f(running.session);
}

// Where sessions run. Made at the first of them: a script may set the variables itself.
struct Where {
  std::mutex mutex;
  std::shared_ptr<Connector> connector;
  std::shared_ptr<Connector> get() {
    std::lock_guard lock(mutex);
    if (!connector) connector = std::make_shared<Connector>();
    return connector;
  }
};

void check_signals() {
  nb::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

std::shared_ptr<Running> start(Where& where, const BuiltJob& built, const Config& config, TableSetPtr tables) {
  return with_files([&] {
    nb::gil_scoped_release release;
    auto running = std::make_shared<Running>(built.job, config, std::move(tables), where.get(), check_signals);
    for (auto& [name, value] : built.constants) running->session.set_variable(name, *value);
    return running;
  });
}

// Waits in short pieces, so that a signal (Ctrl-C) is seen.
std::optional<StepResult> wait_watching_signals(Running& running, double seconds) {
  auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    auto result = unlocked(running, [](Session& s) { return s.wait_step(50ms); });
    if (result) ++running.taken;
    if (result || std::chrono::steady_clock::now() >= until) return result;
  }
}

nb::object wait(Running& running, double seconds) {
  auto result = wait_watching_signals(running, seconds);
  if (!result) return nb::none();
  nb::dict outputs;
  for (auto& [name, value] : result->outputs)
    outputs[name.c_str()] = numpy_array(std::make_shared<const HostArray>(std::move(value)));
  return nb::make_tuple(result->step, result->batch, outputs);
}

nb::object variable(Running& running, const std::string& name) {
  auto value = unlocked(running, [&](Session& s) { return s.variable(name); });
  return numpy_array(std::make_shared<const HostArray>(std::move(value)));
}

// Lets one step start, on `batch` where the client feeds.
void start_step(Running& running, const nb::dict& batch) {
  std::map<std::string, HostArray> arrays;
  for (auto [name, value] : batch) arrays[nb::cast<std::string>(name)] = host_array(nb::cast<AnyArray>(value));
  unlocked(running, [&](Session& s) {
    if (!arrays.empty()) s.feed(std::move(arrays));
    s.grant(1);
  });
  ++running.granted;
}

nb::dict stats(Running& running) {
  auto stats = unlocked(running, [](Session& s) { return s.stats(); });
  nb::dict result;
  result["firings"] = stats.firings;
  result["messages"] = stats.messages;
  result["bytes_moved"] = stats.bytes_moved;
  result["alive_max"] = stats.alive_max;
  result["fired"] = stats.fired;
  return result;
}

void bind_sessions(nb::module_& m) {
  nb::class_<Running>(m, "Session", "One job, planned and running.")
      .def_prop_ro(
          "plan", [](Running& r) -> const Plan& { return r.session.plan(); }, nb::rv_policy::reference_internal)
      .def("variables", [](Running& r) { return r.session.variables(); })
      .def("variable", variable, nb::sig("def variable(self, name: str) -> typing.Any"))
      .def("set_variable",
           [](Running& r, const std::string& name, const AnyArray& value) {
             auto array = host_array(value);
             unlocked(r, [&](Session& s) { s.set_variable(name, std::move(array)); });
           })
      .def("start_step", start_step)
      .def_ro("granted", &Running::granted)
      .def_ro("taken", &Running::taken)
      .def("wait", wait, nb::sig("def wait(self, seconds: float) -> typing.Any"))
      .def("drain", [](Running& r) { unlocked(r, [](Session& s) { s.drain(); }); })
      .def("set_step", [](Running& r, int64_t step) { unlocked(r, [&](Session& s) { s.set_step(step); }); })
      .def_prop_ro("steps_done", [](Running& r) { return r.session.steps_done(); })
      .def_prop_ro("rows", [](Running& r) { return r.session.rows(); })
      .def("stats", stats);
  m.def("start", [where = std::make_shared<Where>()](const BuiltJob& built, const Config& config, TableSetPtr tables) {
    return start(*where, built, config, std::move(tables));
  });
}

}  // namespace

void bind_job(nb::module_& m) {
  bind_configs(m);
  bind_jobs(m);
  bind_plans(m);
  bind_sessions(m);
}

}  // namespace sluice
