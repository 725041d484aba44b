// SPDX-License-Identifier: Apache-2.0
// Numbers mean the same on worker processes: every placement on 2 and on 4 of them, over shared memory, over UCX and
// mixed, as jobs submitted one after the other to a standing cluster.
#include "tests/training.h"
#include "tests/workers.h"

namespace sluice {
namespace {

using testing::expect_equal;
using testing::MlpOptions;
using testing::options_of;
using testing::train;
using testing::Trained;

struct Hosts {
  const char* name;
  std::vector<std::string> labels;  // of the workers
};

class Processes : public ::testing::TestWithParam<Hosts> {};

TEST_P(Processes, EveryPlacementEqualsTheSingleRun) {
  testing::Workers workers(GetParam().labels);
  auto options = options_of(DType::float64);
  static const Trained single = train(options, "", 20), shorter = train(options, "", 6);
  for (auto& placement : testing::placements()) {
    SCOPED_TRACE(placement.name);
    expect_equal(train(options, placement.config, 20, workers.start_plan()), single, 1e-9, 1e-9);
    std::string sim = placement.config + "[device]\nkind = \"sim\"\n";
    expect_equal(train(options, sim, 6, workers.start_plan()), shorter, 1e-9, 1e-9);
  }
}

TEST_P(Processes, Float32WithinRounding) {
  testing::Workers workers(GetParam().labels);
  auto options = options_of(DType::float32);
  static const Trained single = train(options, "", 50);
  for (auto& placement : testing::spread()) {
    SCOPED_TRACE(placement.name);
    expect_equal(train(options, placement.config, 50, workers.start_plan()), single, 1e-4, 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, Processes,
                         ::testing::Values(Hosts{"shm_2", {"a", "a"}}, Hosts{"shm_4", {"a", "a", "a", "a"}},
                                           Hosts{"ucx_2", {"a", "b"}}, Hosts{"ucx_4", {"a", "b", "c", "d"}},
                                           Hosts{"mixed_2_hosts_of_2", {"a", "a", "b", "b"}}),
                         [](auto& info) { return info.param.name; });

}  // namespace
}  // namespace sluice
