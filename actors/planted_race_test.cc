// SPDX-License-Identifier: Apache-2.0
// A race that we plant is reported: the thread sanitizer sees what actors do. In every build a small program of its own
// shows that the compiler's sanitizer works; in the sanitizer's build a floor races in an op.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <string>

#include "actors/testing.h"

namespace sluice {
namespace {

TEST(PlantedRace, IsReportedInAProgramOfItsOwn) {
  std::string folder = testing::TempDir() + "sluice_race_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/race.cc") << "#include <thread>\n"
                                        "int shared;\n"
                                        "int main() {\n"
                                        "  auto work = [] { for (int i = 0; i < 1000; ++i) ++shared; };\n"
                                        "  std::thread a(work), b(work);\n"
                                        "  a.join();\n"
                                        "  b.join();\n"
                                        "}\n";
  // Some kernels place programs where the sanitizer wants its shadow: without randomisation it always starts.
  std::string command = "cd " + folder +
                        " && g++ -O1 -fsanitize=thread race.cc -o race -pthread 2>&1"
                        " && TSAN_OPTIONS= setarch $(uname -m) -R ./race 2>&1; rm -r " +
                        folder;
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  std::array<char, 256> line;
  while (fgets(line.data(), int(line.size()), pipe)) output += line.data();
  pclose(pipe);
  EXPECT_THAT(output, testing::HasSubstr("data race"));
}

#ifdef __SANITIZE_THREAD__
int64_t unguarded = 0;  // the planted mistake
void race(const Call&) {
  for (int i = 0; i < 1000; ++i) ++unguarded;
}
constexpr OpDef race_op{.name = "race", .cpu = race};

void run_racing_floor() {
  testing_plans::PlanMaker make;
  int c = make.cls(2);
  make.op("race", "race", c, {}, {{make.reg("r", c, make.fixed_type({1}))}});
  const OpTable ops({&race_op});
  FloorOptions options;
  options.workers = 2;
  Floor floor(make.plan, {ops, builtin_moves(), builtin_kinds(), builtin_devices(), builtin_readers()}, options);
  floor.grant(100);
  floor.drain();
}

TEST(PlantedRace, IsReportedInAnOpOfAFloor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto failed = [](int status) { return status != 0; };
  EXPECT_EXIT((run_racing_floor(), exit(0)), failed, "data race");
}
#endif

}  // namespace
}  // namespace sluice
