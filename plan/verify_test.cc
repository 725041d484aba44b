// SPDX-License-Identifier: Apache-2.0
// One plan that every rule accepts, and for each rule a small change that it refuses.
#include "plan/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/samples.h"

namespace sluice {
namespace {

// A step of one layer on two ranks and two micro-batches: forward, gradient of the weight, sum over micro-batches,
// all-reduce, update in place. %4 takes %3's buffer; %5 is a view of %0.
constexpr std::string_view golden = R"(plan step seed=1 micro=2 batch=16 device=cpu
source idx
class 0 main mesh=main(dp=2)@0 arena=448 least=448
  stream compute at=320 bytes=128
  stream move
  register r0 x bytes=64 at=0 slots=2 by=a0 holds=[%0,%5]
    tensor %0 x float32[8b,4] (S(0)) in=r0 bytes=64
    tensor %5 xt float32[4,8b] (S(1)) in=r0 layout=col bytes=64
  register r1 w bytes=64 at=128 slots=1 full=1 by=a3 variable=w holds=[%1,%2]
    tensor %1 w float32[4,4] (B) in=r1 bytes=64
    tensor %2 w.next float32[4,4] (B) in=r1 bytes=64
  register r2 sum bytes=64 at=192 slots=1 by=a1 holds=[%7]
    tensor %7 sum float32[4,4] (P) in=r2 bytes=64
  register r3 g bytes=64 at=256 slots=1 by=a2 holds=[%8]
    tensor %8 g float32[4,4] (B) in=r3 bytes=64
  tensor %3 h float32[8b,4] (S(0)) at=0 bytes=64
  tensor %4 y float32[8b,4] (S(0)) at=0 bytes=64
  tensor %6 gw float32[4,4] (P) at=64 bytes=64
  actor a0 rows source stream=1 firings=2 out=[r0] source=0
  actor a1 chain compute firings=2 in=[r0,r1*2] out=[r2*2]
    op matmul h (%0,%1)->(%3) line=net.py:3
    op relu y (%3)->(%4)
    op matrix_transpose xt (%0)->(%5)
    op matmul gw (%5,%4)->(%6)
    op accumulate sum (%6)->(%7)
  actor a2 reduce move stream=1 in=[r2] out=[r3]
    move all_reduce %7->%8
  actor a3 update compute in=[r3] out=[r1] phase=optimizer
    op subtract w (%1,%8)->(%2)
  actor a4 show sink stream=1 in=[r3] names=[g] tensors=[%8]
)";

const OpTable& ops() {
  static const OpTable table({builtin_ops().begin(), builtin_ops().end()});
  return table;
}

std::string changed(std::initializer_list<std::pair<std::string_view, std::string_view>> changes) {
  std::string text(golden);
  for (auto [from, to] : changes) {
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
  }
  return text;
}

std::string refusal(const std::string& text) {
  Plan plan = parse_plan(text);
  try {
    verify(plan, ops());
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Verify, AcceptsAWholeStep) { EXPECT_EQ(refusal(std::string(golden)), "none"); }

TEST(Verify, AcceptsAStaleVariable) {
  EXPECT_EQ(refusal(changed({{"at=128 slots=1 full=1", "at=448 slots=3 full=3"}, {"arena=448", "arena=640"}})), "none");
}

struct Rule {
  std::vector<std::pair<std::string_view, std::string_view>> changes;
  std::string_view why;
};

void refused(const std::vector<Rule>& rules) {
  for (auto& rule : rules) {
    std::string text(golden);
    for (auto [from, to] : rule.changes) {
      size_t at = text.find(from);
      ASSERT_NE(at, std::string::npos) << from;
      text.replace(at, from.size(), to);
    }
    EXPECT_THAT(refusal(text), testing::HasSubstr(std::string(rule.why))) << rule.changes[0].second;
  }
}

TEST(Verify, RefusesWrongTypes) {
  refused({
      {{{"op relu y", "op gelu9 y"}}, "types: the op y (gelu9) of actor chain: there is no such op"},
      {{{"%4 y float32[8b,4]", "%4 y float32[4,8b]"}}, "it makes float32[8b,4], but y is float32[4,8b]"},
      {{{"%4 y float32", "%4 y int32"}}, "it makes float32[8b,4], but y is int32[8b,4]"},
      {{{"(%3)->(%4)", "(%3,%3)->(%4)"}}, "the op y (relu)"},
      {{{"(%3)->(%4)", "(%3)->(%4,%6)"}}, "it has 1 outputs, not 2"},
      {{{"%1 w float32[4,4] (B)", "%1 w float32[4,4] (S(0))"}},
       "net.py:3: types: the op h (matmul) of actor chain: on axis dp it has (S(0),S(0))->(S(0)), which is none of its "
       "signatures"},
      {{{"%6 gw float32[4,4] (P)", "%6 gw float32[4,4] (B)"}}, "on axis dp it has (S(1),S(0))->(B)"},
      {{{"%8 g float32[4,4]", "%8 g float32[16]"}}, "it changes the type from float32[4,4] to float32[16]"},
      {{{"layout=col", "layout=diagonal"}}, "cannot have the layout diagonal"},
      {{{"%4 y float32[8b,4] (S(0))", "%4 y float32[8b,4] (S(0)) layout=col"}}, "its output y has the layout col"},
      {{{"%5 xt float32[4,8b] (S(1)) in=r0 layout=col", "%5 xt float32[4,8b] (S(1)) layout=col"}, {"%0,%5", "%0"}},
       "it changes the layout, but is no view of its input"},
      {{{"in=[r0,r1*2]", "in=[r0]"}}, "the register w, for which the actor has no port"},
      {{{"(%6)->(%7)", "(%6)->(%8)"}}, "the register g, for which the actor has no out-port"},
      {{{"in=[r2] out=[r3]", "out=[r3]"}}, "it reads what no in-port of the actor gives"},
      {{{"move all_reduce %7->%8", "move all_reduce %7->%6"}}, "it writes what no out-port of the actor gives"},
      {{{"a2 reduce move", "a2 reduce compute"}}, "it has ops or moves, which this kind has not"},
      {{{" tensors=[%8]", ""}}, "it has 1 names for 0 tensors"},
      {{{" tensors=[%8]", " tensors=[%7]"}}, "none of its ports holds sum"},
      {{{"(%3)->(%4)", "(%3)->(%4) {alpha=1}"}}, "the op y (relu) of actor chain"},
      {{{"out=[r2*2]", "out=[r2]"}, {"actor a2 reduce move stream=1", "actor a2 reduce move stream=1 firings=2"}},
       "sum must lie in a register that is published once a step"},
      {{{"(%6)->(%7)", "(%6)->(%7)\n    op relu late (%7)->(%6)"}}, "sum is read by late before it is complete"},
  });
}

TEST(Verify, RefusesAnotherClass) {
  std::string_view elsewhere = "class 1 other mesh=other(dp=2)@2\n  stream compute\n  stream move\n  actor a2 reduce";
  std::string text(golden);
  text.replace(text.find("  actor a2 reduce"), std::string_view("  actor a2 reduce").size(), elsewhere);
  EXPECT_THAT(refusal(text), testing::HasSubstr("the register g of actor reduce: it writes another class"));
}

TEST(Verify, RefusesRatesAndStalls) {
  refused({
      {{{"in=[r0,r1*2]", "in=[r0,r1]"}},
       "rates: the actor chain and the register w: it takes 2 tokens a step, but update makes 1"},
      {{{"full=1 ", ""}},
       "liveness: the plan stalls: actor chain waits for a full slot of register w from actor update (0 of 1); "
       "update waits for a full slot of register g from actor reduce"},
  });
}

TEST(Verify, RefusesMemoryThatIsShared) {
  refused({
      {{{"arena=448", "arena=440"}},
       "memory: the scratch of stream compute ends at 448, behind the arena of class main with 440"},
      {{{"at=192", "at=128"}}, "the register w and the register sum overlap in the arena"},
      {{{"at=256", "at=260"}}, "the offset of the register g is 260, no multiple of 64"},
      {{{"at=320", "at=256"}}, "the register g and the scratch of stream compute overlap"},
      {{{"slots=2 by=a0", "slots=3 by=a0"}}, "the register x and the register w overlap"},
      {{{"%3 h float32[8b,4] (S(0)) at=0 bytes=64", "%3 h float32[8b,4] (S(0)) at=0 bytes=63"}},
       "has 63 bytes, but its largest part needs 64"},
      {{{"register r3 g bytes=64", "register r3 g bytes=0"}},
       "g ends at 64, behind the slot of register g with 0 bytes"},
      {{{"holds=[%8]", "holds=[%8,%8]"}}, "g and g share bytes in the register g"},
      {{{"holds=[%8]", "holds=[%8,%6]"}}, "the register g holds gw, which lies elsewhere"},
      {{{"at=320 bytes=128", "at=320 bytes=64"}}, "gw ends behind the scratch of 64 bytes"},
      {{{"float32[4,4] (P) at=64", "float32[4,4] (P) at=0"}},
       "y and gw share bytes in the scratch of actor chain while both are alive"},
      {{{"(%3)->(%4)\n", "(%3)->(%4)\n    op add late (%4,%3)->(%4)\n"}},
       "the op late of actor chain: it writes y, which is written before"},
      {{{"  tensor %6 gw", "  tensor %9 z float32[8b,4] (S(0)) at=64 bytes=64\n  tensor %6 gw"},
        {"    op matmul gw", "    op relu again (%3)->(%9)\n    op matmul gw"}},
       "h and y share bytes in the scratch of actor chain while both are alive"},
      {{{"op relu y (%3)->(%4)", "op relu y (%4)->(%3)"}},
       "reads y from the scratch, where no earlier op of its chain put it"},
      {{{"line=net.py:3", "line=net.py:3 work=0+64"}},
       "net.py:3: memory: the op h of actor chain: its workspace lies over h, which is alive"},
      {{{"line=net.py:3", "line=net.py:3 work=128+64"}}, "its workspace ends behind the scratch of 128 bytes"},
      {{{"op subtract w (%1,%8)->(%2)", "op matmul w (%1,%8)->(%2)"}},
       "w and w.next share bytes in a register of actor update while both are alive"},
      {{{"op subtract w (%1,%8)->(%2)", "op matmul w (%1,%8)->(%1)"}}, "it writes w while it reads it"},
      {{{"holds=[%1,%2]", "holds=[%1,%2,%8]"}}, "the register w holds g, which lies elsewhere"},
  });
}

TEST(Verify, WorkspaceMayLieWhereNothingIsAlive) {
  EXPECT_EQ(refusal(changed({{"line=net.py:3", "line=net.py:3 work=64+64"}})), "none");
}

TEST(Verify, AnyStructureIsAVerdict) {
  samples::Random random(21);
  for (int trial = 0; trial < 2'000; ++trial) {
    Plan plan = samples::any_plan(random);
    for (auto& actor : plan.actors) {
      if (random() % 2) actor.kind = "compute";
      for (auto& op : actor.ops) op.op = ops().all()[random() % ops().all().size()]->name;
    }
    for (auto proof : {verify_types, verify_memory, verify}) try {
        proof(plan, ops());
      } catch (const Error&) {
      }
  }
}

}  // namespace
}  // namespace sluice
