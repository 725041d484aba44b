// SPDX-License-Identifier: Apache-2.0
// Two hosts with a cable between them: network namespaces and a veth pair, made and removed here. What must cross does,
// by the cable's own counters, and the numbers stay those of the single run.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "tests/training.h"
#include "tests/workers.h"

namespace sluice {
namespace {

using testing::MlpOptions;

bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// This namespace is one host, at 10.77.N.1; `name` is the other, at 10.77.N.2.
class TwoHosts {
 public:
  TwoHosts() {
    made_ = shell("ip netns add " + name) &&
            shell(fmt::format("ip link add {0}a type veth peer name {0}b netns {0}", name)) &&
            shell(fmt::format("ip addr add {}/24 dev {}a", here, name)) && shell("ip link set " + name + "a up") &&
            shell(fmt::format("ip -n {0} addr add {1}/24 dev {0}b", name, there)) &&
            shell(fmt::format("ip -n {0} link set {0}b up && ip -n {0} link set lo up", name));
  }
  ~TwoHosts() {
    shell("ip link del " + name + "a");
    shell("ip netns del " + name);
  }
  bool made() const { return made_; }
  int64_t crossed(const char* direction) const {
    int64_t bytes = 0;
    std::ifstream(fmt::format("/sys/class/net/{}a/statistics/{}_bytes", name, direction)) >> bytes;
    return bytes;
  }

  const std::string name = fmt::format("sl{}", getpid());
  const std::string here = fmt::format("10.77.{}.1", getpid() % 250), there = fmt::format("10.77.{}.2", getpid() % 250);

 private:
  bool made_ = false;
};

class Namespaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.made()) GTEST_SKIP() << "no network namespace can be made here (it needs root and iproute2)";
  }
  std::vector<testing::WorkerPlace> places(int each) const {
    std::vector<testing::WorkerPlace> places;
    for (int i = 0; i < each; ++i) places.push_back({"a", hosts_.here, {}});
    for (int i = 0; i < each; ++i)
      places.push_back({"b", hosts_.there, {"/usr/sbin/ip", "netns", "exec", hosts_.name}});
    return places;
  }
  TwoHosts hosts_;
};

TEST_F(Namespaces, GradientsCrossTheCable) {
  testing::Workers workers(places(1), hosts_.here);
  MlpOptions options = testing::options_of(DType::float64);
  options.widths = {64, 256, 256, 10};
  int64_t weights = 64 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10, steps = 8;
  auto single = testing::train(options, "", steps);
  int64_t out = hosts_.crossed("tx"), in = hosts_.crossed("rx");
  testing::expect_equal(testing::train(options, "[mesh]\naxes = { dp = 2 }\n", steps, workers.start_plan()), single,
                        1e-9, 1e-9);
  // Each host has to hear half of the other's gradient at the least, and the half that the other summed.
  EXPECT_GE(hosts_.crossed("tx") - out, steps * weights * 8);
  EXPECT_GE(hosts_.crossed("rx") - in, steps * weights * 8);
}

TEST_F(Namespaces, TwoHostsOfTwoWorkers) {
  testing::Workers workers(places(2), hosts_.here);
  MlpOptions options = testing::options_of(DType::float64);
  auto single = testing::train(options, "", 10);
  for (auto& placement : testing::spread()) {
    SCOPED_TRACE(placement.name);
    testing::expect_equal(testing::train(options, placement.config, 10, workers.start_plan()), single, 1e-9, 1e-9);
  }
}

}  // namespace
}  // namespace sluice
