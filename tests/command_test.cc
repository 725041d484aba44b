// SPDX-License-Identifier: Apache-2.0
// The command as a user meets it: what it prints and what it returns.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "checkpoint/safetensors.h"
#include "graph/job_file.h"
#include "plan/plan.h"
#include "tests/job_files.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct Result {
  int code = -1;
  std::string text;  // stdout and stderr
};

Result sluice_command(const std::string& arguments) {
  std::string command = fs::read_symlink("/proc/self/exe").parent_path() / "sluice";
  FILE* pipe = popen((command + " " + arguments + " 2>&1 </dev/null").c_str(), "r");
  Result result;
  char buffer[4096];
  while (size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) result.text.append(buffer, n);
  int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

class Command : public ::testing::Test {
 protected:
  Command() : folder_(fs::temp_directory_path() / fmt::format("sluice_command_{}", getpid())) {
    fs::create_directories(folder_);
  }
  ~Command() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }

 private:
  fs::path folder_;
};

void expect(const std::string& arguments, int code, const std::string& text) {
  Result result = sluice_command(arguments);
  EXPECT_EQ(result.code, code) << arguments;
  EXPECT_EQ(result.text, text) << arguments;
}

TEST_F(Command, RefusesWhatItDoesNotKnow) {
  expect("--hlep", 64, "sluice: error: unknown flag '--hlep'\n  next: did you mean '--help'?\n");
  expect("pln x.job", 64, "sluice: error: unexpected word 'pln'\n  next: did you mean 'plan'?\n");
  expect("doctor", 64, "sluice: error: 'doctor' is not supported yet\n  next: see: sluice --help\n");
  expect("plan x.job --cofnig a", 64, "sluice: error: unknown flag '--cofnig'\n  next: did you mean '--config'?\n");
  expect("run x.py --zzz", 64, "sluice: error: unknown flag '--zzz'\n  next: see: sluice run --help\n");
  expect("plan x.job --devices many", 64,
         "sluice: error: --devices: Value many not in range 1 to 1048576\n  next: see: sluice plan --help\n");
  expect("", 64, "sluice: error: a subcommand is missing\n  next: see: sluice --help\n");
  expect("config", 64, "sluice: error: a subcommand is missing\n  next: see: sluice config --help\n");
  expect("config chek x", 64, "sluice: error: unexpected word 'chek'\n  next: did you mean 'check'?\n");
  EXPECT_EQ(sluice_command("plan x.job --json --text").code, 64);
  EXPECT_EQ(sluice_command("plan x.job --devices 0").code, 64);
  EXPECT_EQ(sluice_command("bench step --seconds -1").code, 64);
  EXPECT_EQ(sluice_command("bench step --workload gpt").code, 64);
}

TEST_F(Command, HelpsAndTellsItsVersion) {
  for (const char* arguments : {"--help", "run --help", "config print --help", "bench step --help"}) {
    Result result = sluice_command(arguments);
    EXPECT_EQ(result.code, 0) << arguments;
    EXPECT_NE(result.text.find("Usage"), std::string::npos) << result.text;
  }
  EXPECT_EQ(sluice_command("--version").text, "0.1.0\n");
}

std::string text_of_file(const std::string& path) {
  std::ifstream in(path);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

// All flags, keys and exit codes stand in one text. Who changes it tells the users: the changelog names its hash.
// To renew it: SLUICE_WRITE_GUIDE=1 build/release/command_test --gtest_filter=*Golden*
TEST_F(Command, SurfaceIsTheGoldenOne) {
  std::string surface;
  for (std::string sub : {"", "run ", "plan ", "config ", "config check ", "config print ", "config schema ", "bench ",
                          "bench actors ", "bench step ", "bench allreduce ", "bench p2p ", "coordinator ", "worker ",
                          "submit ", "jobs ", "logs ", "cancel "})
    surface += fmt::format("$ sluice {0}--help\n{1}\n", sub, sluice_command(sub + "--help").text);
  surface += "$ sluice config schema\n" + sluice_command("config schema").text;
  if (std::getenv("SLUICE_WRITE_GUIDE")) std::ofstream("tests/command_surface.txt") << surface;
  EXPECT_EQ(text_of_file("tests/command_surface.txt"), surface);
  std::string hash = fmt::format("command surface {:08x}", uint32_t(name_hash(surface)));
  EXPECT_NE(text_of_file("CHANGELOG.md").find(hash), std::string::npos) << "say in CHANGELOG.md what changed: " << hash;
}

TEST_F(Command, ChecksFiles) {
  for (auto& entry : fs::directory_iterator("examples/parallel")) {
    Result result = sluice_command("config check " + entry.path().string());
    EXPECT_EQ(result.code, 0) << result.text;
    EXPECT_NE(result.text.find(": right, for "), std::string::npos) << result.text;
  }
  std::string bad = write("p.toml", "[mesh]\naxes = { dp = 2 }\n[train]\nmicro_bacth = 3\n");
  expect("config check " + bad, 64,
         "sluice: error: " + bad + ":4: unknown key 'micro_bacth' in [train]\n  next: did you mean 'micro_batch'?\n");
  expect("config check " + path("none.toml"), 64,
         "sluice: error: " + path("none.toml") + ": no such file\n  next: give the path of a TOML file\n");
  std::string open = write("open.toml", "[mesh]\naxes = { dp = -1, tp = 2 }\n");
  expect("config check --devices 8 " + open, 0, open + ": right, for 8 devices\n");
  EXPECT_EQ(sluice_command("config check --devices 7 " + open).code, 64);
}

TEST_F(Command, PrintsAFileCompleted) {
  Result once = sluice_command("config print examples/parallel/servers.toml");
  EXPECT_EQ(once.code, 0);
  Result again = sluice_command("config print " + write("printed.toml", once.text));
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_NE(again.text.find("staleness = 0"), std::string::npos);
  EXPECT_NE(sluice_command("config schema").text.find("[[rule]]"), std::string::npos);
}

TEST_F(Command, ExplainsAPlan) {
  OpTable ops({builtin_ops().begin(), builtin_ops().end()});
  save_job(testing::mlp(ops, {}), path("mlp.job"));
  for (auto& entry : fs::directory_iterator("examples/parallel")) {
    std::string name = entry.path().string();
    if (name.find("pp") != std::string::npos) continue;  // their micro-batches are for a larger batch
    std::string arguments = fmt::format("plan {} --config {}", path("mlp.job"), name);
    Result people = sluice_command(arguments), text = sluice_command(arguments + " --text"),
           json = sluice_command(arguments + " --json");
    ASSERT_EQ(people.code, 0) << people.text;
    ASSERT_EQ(text.code, 0) << text.text;
    EXPECT_EQ(text_of(parse_plan(text.text)), text.text);
    EXPECT_TRUE(nlohmann::json::accept(json.text)) << json.text;
  }
  EXPECT_EQ(sluice_command("plan " + path("none.job")).code, 1);
  EXPECT_EQ(sluice_command("plan " + write("bad.job", "no job")).code, 1);
  EXPECT_EQ(sluice_command("plan --devices 4 " + path("mlp.job")).code, 64);
  std::string config =
      write("rule.toml", "[mesh]\naxes = { tp = 2 }\n[[rule]]\nmatch = 'layerz'\nsbp = { tp = \"B\" }\n");
  Result nothing = sluice_command(fmt::format("plan {} --config {}", path("mlp.job"), config));
  EXPECT_EQ(nothing.code, 64);
  EXPECT_NE(nothing.text.find("rule.toml:"), std::string::npos) << nothing.text;  // a pin that matches nothing
}

TEST_F(Command, RunsAJobsFileAndSavesItsWeights) {
  OpTable ops({builtin_ops().begin(), builtin_ops().end()});
  Job job = testing::classifier(ops);
  save_job(job, path("net.job"));
  auto names = testing::write_weights(job, path("first.safetensors"));

  std::string run = "run " + path("net.job");
  Result none = sluice_command(run);
  EXPECT_EQ(none.code, 64);
  EXPECT_NE(none.text.find("a job's file holds no weights"), std::string::npos) << none.text;
  run += " --weights " + path("first.safetensors") + " --config examples/parallel/dp2_tp2.toml";
  Result result = sluice_command(run + " --steps 5 --save " + path("last.safetensors"));
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_NE(result.text.find("step 5/5  loss "), std::string::npos) << result.text;
  Checkpoint first(path("first.safetensors")), last(path("last.safetensors"));
  for (auto& name : names) {
    auto *before = first.find(name), *after = last.find(name);
    ASSERT_TRUE(before && after) << name;
    EXPECT_EQ(after->dims, before->dims);
    EXPECT_FALSE(std::equal(before->bytes.begin(), before->bytes.end(), after->bytes.begin())) << name;
  }
  EXPECT_EQ(sluice_command(run + " -- --lr 3").code, 64);  // arguments are a script's
}

TEST_F(Command, RefusesWhatItCannotRun) {
  EXPECT_EQ(sluice_command("run " + path("none.py")).code, 64);
  EXPECT_EQ(sluice_command("run " + write("net.onnx", "")).code, 64);
  std::string script = write("train.py", "");
  EXPECT_EQ(sluice_command("run " + script + " --steps 3").code, 64);
  EXPECT_EQ(sluice_command("run " + script + " --config " + path("none.toml")).code, 64);
  Result alone = sluice_command("run " + script);  // the build folder has no python beside the command
  EXPECT_EQ(alone.code, 64);
  EXPECT_NE(alone.text.find("there is no python beside this command"), std::string::npos) << alone.text;
}

TEST_F(Command, TimesAStep) {
  Result result = sluice_command("bench step --workload mlp --threads 1 --seconds 0.05 --json");
  ASSERT_EQ(result.code, 0) << result.text;
  auto json = nlohmann::json::parse(result.text);
  for (const char* key :
       {"framework", "workload", "threads", "ms", "min", "max", "steps", "first_s", "first_ms", "loss", "peak_mib"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_GE(json["steps"], 5);
  EXPECT_LT(json["loss"], 2.4);  // ln 10 = 2.3 before the first step; it only has to fall
}

}  // namespace
}  // namespace sluice
