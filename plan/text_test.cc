// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/samples.h"

namespace sluice {
namespace {

Plan small_plan() {
  Plan plan{.job = "mlp", .seed = 7, .micro_batches = 4, .batch_bound = 128};
  plan.notes = {{"stages", "one, for the model is small"}};
  plan.sources = {{"idx", {{"path", std::string("/data/fashion mnist")}}, true}};
  plan.classes = {{"main", {"main", {{"dp", 2}, {"tp", 2}}, 0}, "", {{"compute", 8192, 4096}}, 12288, 12000, 0}};
  NdSbp sbp{Sbp::broadcast(), Sbp::split(0)};
  plan.tensors = {
      {"fc.weight", {DType::float32, {{32}, {32}}}, 0, sbp, "row", 0, 0, 2048},
      {"h", {DType::float32, {{32, batch_sym}, {32}}}, 0, {Sbp::split(0), Sbp::split(1)}, "col", -1, 64, 1024}};
  plan.registers = {{"fc.weight", 0, 2, 2048, 0, 2, 0, {0}, "fc.weight"}};
  PlanActor actor{.name = "chain 0", .kind = "compute", .key = 9, .firings = 4, .out = {{0, 4}}};
  actor.ops = {{"sgd", "fc.weight", {{"lr", 0.1}}, {0, 1}, {0}, 64, 128, {"my train.py", 12}}};
  actor.phase = Phase::optimizer;
  plan.actors = {actor};
  return plan;
}

constexpr std::string_view small_text = R"(plan mlp seed=7 micro=4 batch=128 device=cpu
note stages "one, for the model is small"
source idx {path="/data/fashion mnist"}

class 0 main mesh=main(dp=2,tp=2)@0 arena=12288 least=12000
  stream compute at=8192 bytes=4096
  register r0 fc.weight bytes=2048 at=0 slots=2 full=2 by=a0 variable=fc.weight holds=[%0]
    tensor %0 fc.weight float32[32,32] (B,S(0)) in=r0 at=0 bytes=2048
  tensor %1 h float32[32b,32] (S(0),S(1)) layout=col at=64 bytes=1024
  actor a0 "chain 0" compute stream=0 key=9 firings=4 out=[r0*4] phase=optimizer
    op sgd fc.weight (%0,%1)->(%0) {lr=0.1} work=64+128 line="my train.py":12
)";

TEST(PlanText, IsReadable) { EXPECT_EQ(text_of(small_plan()), small_text); }
TEST(PlanText, ParsesBack) { EXPECT_EQ(parse_plan(small_text), small_plan()); }

TEST(PlanText, OrderOfLinesAndFieldsIsFree) {
  std::string text =
      "# a comment\n\nplan p device=cpu seed=18446744073709551615\n"
      "class 0 c mesh=m()@3\n  tensor %1 b int32[] () bytes=4 at=64\n  tensor %0 a int32[] () at=0 bytes=4";
  Plan plan = parse_plan(text);
  EXPECT_EQ(plan.seed, ~uint64_t(0));
  EXPECT_EQ(plan.tensors[0].name, "a");
  EXPECT_EQ(plan.tensors[1].offset, 64);
  EXPECT_EQ(plan.ranks(), 4);
}

TEST(PlanText, AnyPlanRoundTrips) {
  samples::Random random(1);
  for (int trial = 0; trial < 2'000; ++trial) {
    Plan plan = samples::any_plan(random);
    std::string text = text_of(plan);
    Plan again;
    ASSERT_NO_THROW(again = parse_plan(text)) << text;
    ASSERT_TRUE(again == plan) << text << "\ncame back as\n" << text_of(again);
  }
}

struct Refusal {
  std::string_view text, why;
};

TEST(PlanText, SaysTheLineAndTheReason) {
  for (auto [text, why] : std::initializer_list<Refusal>{
           {"", "plan: the text has no line"},
           {"plan p\nplan p", "plan:2: the plan's line stands twice"},
           {"plan p seed=-1", "plan:1: \"-1\" is no seed"},
           {"plan p colour=red", "plan:1: \"colour=red\" is unknown here"},
           {"plan p micro=1 micro=2", "\"micro=2\" is unknown here, or stands twice"},
           {"plan", "the line ends where the job's name should be"},
           {"plan \"p", "leaves a quote or a bracket open"},
           {"plan p]", "closes a bracket"},
           {"plan p\nbuffer x", "\"buffer\" starts no line of a plan"},
           {"plan p\n  stream s", "there is no class before this line"},
           {"plan p\n  op sgd x ()->()", "there is no actor before this line"},
           {"plan p\nclass 1 c mesh=m()@0", "classes must stand in order"},
           {"plan p\nclass 0 c", "a class has no mesh="},
           {"plan p\nclass 0 c mesh=m@0", "a mesh has no axes"},
           {"plan p\nclass 0 c mesh=m(dp)@0", "is not of the form axis=size"},
           {"plan p\nclass 0 c mesh=m(dp=0)@0", "has 0 ranks on axis dp"},
           {"plan p\nclass 0 c mesh=m(a=9999,b=9999,c=9999)@0", "ranks"},
           {"plan p\nclass 0 c mesh=m()@99999999999", "plan:2: \"99999999999\" is too large"},
           {"plan p\nclass 0 c mesh=m()@0\n tensor %1 a int32[] ()", "tensor 0 is missing or stands twice"},
           {"plan p\nclass 0 c mesh=m()@0\n tensor %0 a int32[] ()\n tensor %0 a int32[] ()",
            "tensor 0 is missing or stands twice"},
           {"plan p\nclass 0 c mesh=m()@0\n tensor %-1 a int32[] ()", "\"%-1\" is no index"},
           {"plan p\nclass 0 c mesh=m()@0\n tensor %0 a int33[] ()", "\"int33[]\" is no type"},
           {"plan p\nclass 0 c mesh=m()@0\n tensor %0 a int32[4] (S(0))", "has SBP (S(0)), but its mesh m has 0 axes"},
           {"plan p\nclass 0 c mesh=m(t=2)@0\n tensor %0 a int32[4] (S(1))", "of type int32[4] cannot have SBP (S(1))"},
           {"plan p\nclass 0 c mesh=m()@0\n tensor %0 a int32[4] () in=r0", "names register 0, which does not exist"},
           {"plan p\nclass 0 c mesh=m()@0\n actor a0 a compute", "names stream 0, which does not exist"},
           {"plan p\nclass 0 c mesh=m()@0\n register r0 r slots=0", "has 0 slots"},
           {"plan p\nclass 0 c mesh=m()@0\n register r0 r slots=1 full=2", "has 2 slots that start full"}})
    try {
      parse_plan(text);
      ADD_FAILURE() << "taken: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::value) << text;
      EXPECT_NE(std::string_view(error.what()).find(why), std::string_view::npos) << text << "\n says " << error.what();
    }
}

// A mutated text is refused with a line, or is a plan that prints and parses.
TEST(PlanText, MutationsNeverCrash) {
  samples::Random random(2);
  static constexpr std::string_view alphabet = "0129-+*=,:%ra()[]{}<>\"\\\n SBP";
  int taken = 0;
  for (int trial = 0; trial < 5'000; ++trial) {
    std::string text = trial % 2 ? text_of(samples::any_plan(random)) : std::string(small_text);
    for (size_t n = 1 + random() % 4; n-- > 0;) {
      size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = alphabet[random() % alphabet.size()]; break;
        case 1: text.insert(at, 1, alphabet[random() % alphabet.size()]); break;
        case 2: text.erase(at, 1 + random() % 3); break;
        case 3: text.insert(at, text.substr(random() % text.size(), random() % 40)); break;
      }
    }
    try {
      Plan plan = parse_plan(text);
      ++taken;
      EXPECT_EQ(text_of(parse_plan(text_of(plan))), text_of(plan));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::value);
    }
  }
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace sluice
