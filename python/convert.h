// SPDX-License-Identifier: Apache-2.0
// Between Python and C++: arrays, attributes, errors. Every bind*.cc uses these.
// Thread rule: the caller holds the Python lock.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <mutex>

#include "launcher/connector.h"
#include "launcher/session.h"
#include "python/expr.h"

namespace nb = nanobind;

namespace sluice {

using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

HostArray host_array(const AnyArray& array);                            // a copy; throws Error on an unknown dtype
nb::object numpy_array(const HostArrayPtr& array);                      // read-only, sharing memory
DType dtype_named(std::string_view name);                               // throws Error with the nearest name
LogicalType type_from(std::string_view dtype, const nb::object& dims);  // dims: ints and Dims
Attrs attrs_from(const OpDef& op, const nb::dict& values);

void register_errors(nb::module_& m);
// Runs `f`, which reads files: there a name that is not found is a FileNotFoundError.
template <class F>
auto with_files(F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    PyErr_SetString(PyExc_FileNotFoundError, error.what());
    throw nb::python_error();
  }
}

// All tables, with the plug-ins they were made from.
struct TableSet {
  explicit TableSet(std::vector<std::string> plugin_files)
      : plugins(std::move(plugin_files)), tables(builtin_tables(plugins)) {}
  std::vector<std::string> plugins;
  Tables tables;
};
using TableSetPtr = std::shared_ptr<TableSet>;

// A job with the values that its graph holds as constants.
struct BuiltJob {
  Job job;
  std::vector<std::pair<std::string, HostArrayPtr>> constants;
};

// A session with what it needs, for one caller at a time. Without a connector it runs in this process.
struct Running {
  Running(Job job, const Config& config, TableSetPtr table_set, std::shared_ptr<Connector> where = {},
          const std::function<void()>& while_waiting = {})
      : tables(std::move(table_set)),
        connector(std::move(where)),
        session(std::move(job), config, tables->tables,
                connector ? connector->start_with(tables->tables, config, while_waiting) : StartPlan{}) {}
  TableSetPtr tables;
  std::shared_ptr<Connector> connector;
  std::mutex mutex;
  Session session;
  int64_t granted = 0, taken = 0;  // steps: a signal may strike between any two lines of Python, but not in here
};

void bind_expr(nb::module_& m);
void bind_job(nb::module_& m);
void bind_data(nb::module_& m);
void bind_cluster(nb::module_& m);

}  // namespace sluice
