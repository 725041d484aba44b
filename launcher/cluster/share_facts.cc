// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/share_facts.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "launcher/plugins.h"

namespace sluice {
namespace {

int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

int streams_of(const Plan& plan, int rank) {
  int streams = 0;
  for (auto& cls : plan.classes)
    if (cls.mesh.holds(rank)) streams += int(cls.streams.size());
  return streams;
}

uint64_t bytes_of_type(const LogicalType& type, int64_t batch_bound) {
  uint64_t bytes = uint64_t(bytes_of(type.dtype));
  for (auto& dim : type.shape) bytes *= uint64_t(dim.sym == batch_sym ? dim.granule * batch_bound : dim.size);
  return bytes;
}

}  // namespace

FloorOptions floor_options(const Plan& plan, const Setup& setup) {
  int streams_here = 0, streams_on_host = 0, ranks_on_host = 0;
  auto& host = setup.host_of_process[size_t(setup.process)];
  for (size_t rank = 0; rank < setup.process_of_rank.size(); ++rank) {
    int process = setup.process_of_rank[rank], streams = streams_of(plan, int(rank));
    if (process == setup.process) streams_here += streams;
    if (setup.host_of_process[size_t(process)] != host) continue;
    streams_on_host += streams, ++ranks_on_host;
  }
  FloorOptions options;
  options.threads =
      setup.request.threads > 0 ? setup.request.threads : std::max(1, cores() / std::max(1, ranks_on_host));
  options.workers = std::max(1, std::min(streams_here, cores() / std::max(1, setup.workers_on_host)));
  options.spin = streams_on_host <= cores() && setup.workers_on_host <= cores();
  options.delay_seed = setup.request.delay_seed;
  options.watchdog = std::chrono::milliseconds(setup.request.watchdog_ms);
  return options;
}

std::optional<uint64_t> input_limit(const Plan& plan, const std::string& name) {
  for (auto& actor : plan.actors)
    for (size_t i = 0; actor.kind == "feed" && i < actor.names.size() && i < actor.tensors.size(); ++i)
      if (actor.names[i] == name)
        return bytes_of_type(plan.tensors.at(size_t(actor.tensors[i])).type, plan.batch_bound);
  return std::nullopt;
}

std::vector<std::string> same_plugins(const Request& request) {
  std::vector<std::string> paths;
  for (auto& [path, hash] : request.plugins) {
    if (fmt::format("{:016x}", hash_of_plugin(path)) != hash)
      throw Error(Code::value, fmt::format("the plug-in {} differs from the client's", path), {},
                  "install the same file on all machines");
    paths.push_back(path);
  }
  return paths;
}

}  // namespace sluice
