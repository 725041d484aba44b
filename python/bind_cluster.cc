// SPDX-License-Identifier: Apache-2.0
// A standing cluster, as a client of its coordinator sees it.
#include "launcher/cluster/cluster.h"
#include "launcher/reach.h"
#include "python/convert.h"

namespace sluice {
namespace {

// Waits for answers without the Python lock.
template <class F>
auto unlocked(F&& f) {
  nb::gil_scoped_release release;
  return f();
}

int64_t submit(Cluster& cluster, const std::string& name, int64_t steps, const std::string& job,
               const std::string& config, const std::string& weights) {
  return unlocked([&] {
    return cluster.submit({name, steps, {}},
                          {{JobPart::job, job}, {JobPart::config, config}, {JobPart::weights, weights}});
  });
}

nb::list jobs_of(Cluster& cluster) {
  nb::list all;
  for (auto& job : unlocked([&] { return cluster.jobs(); })) {
    nb::dict status;
    status["id"] = job.id;
    status["name"] = job.name;
    status["state"] = std::string(job_state_names[size_t(job.state)]);
    status["why"] = job.why;
    status["devices"] = job.devices;
    status["exit_code"] = job.exit_code;
    all.append(status);
  }
  return all;
}

nb::tuple read_part(Cluster& cluster, int64_t id, bool result, int64_t offset) {
  JobBytes piece = unlocked([&] { return cluster.read_job(id, result ? JobPart::result : JobPart::log, offset); });
  return nb::make_tuple(nb::bytes(piece.bytes.data(), piece.bytes.size()), piece.last);
}

}  // namespace

void bind_cluster(nb::module_& m) {
  nb::class_<Cluster>(m, "Cluster", "A connection to a coordinator.")
      .def("submit", submit, nb::arg("name"), nb::arg("steps"), nb::arg("job"), nb::arg("config"), nb::arg("weights"))
      .def("jobs", jobs_of)
      .def("read", read_part, nb::arg("id"), nb::arg("result"), nb::arg("offset"))
      .def("cancel", [](Cluster& c, int64_t id) { unlocked([&] { c.cancel_job(id); }); });
  m.def("connect", [](const std::string& address, const std::string& secret) {
    Credentials credentials = credentials_of(address, secret);
    nb::gil_scoped_release release;
    return std::make_shared<Cluster>(credentials);
  });
}

}  // namespace sluice
