// SPDX-License-Identifier: Apache-2.0
#include "launcher/lines.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using namespace std::chrono_literals;

struct Printed {
  std::string text;
  Lines lines;
  Lines::Clock::time_point now{};  // time is what the test says
  explicit Printed(int sources, Lines::Options options = {})
      : lines([this](const std::string& line) { text += line; }, options) {
    for (int i = 0; i < sources; ++i) lines.add_source("h:" + std::to_string(i));
  }
  void add(int source, std::string_view bytes) { lines.add(source, bytes, now); }
};

TEST(Lines, ArePrefixedWhole) {
  Printed p(2);
  p.add(0, "one\ntw");
  p.add(1, "other\n");
  p.add(0, "o\n\nrest");
  p.lines.end(0, p.now);
  p.lines.end(1, p.now);
  EXPECT_EQ(p.text, "[h:0] one\n[h:1] other\n[h:0] two\n[h:0] \n[h:0] rest\n");
}

TEST(Lines, AreBounded) {
  Printed p(1);
  std::string large(3 * line_bytes_max + 5, 'x');
  p.add(0, large);
  EXPECT_EQ(p.text.size(), 3 * (line_bytes_max + 7));
  p.add(0, "\n");
  EXPECT_EQ(p.text.size(), 3 * (line_bytes_max + 7) + 5 + 7);
}

TEST(Lines, CountWhatAllSay) {
  Printed p(4);
  for (int i = 0; i < 4; ++i) p.add(i, "same\n");
  EXPECT_EQ(p.text, "[h:0] same\n[h:0] same  (3 others said it too)\n");
  p.text.clear();
  for (int i = 0; i < 4; ++i) p.add(i, "same\n");  // a new round
  EXPECT_EQ(p.text, "[h:0] same\n[h:0] same  (3 others said it too)\n");
}

TEST(Lines, TellCountsWhenTheTimeIsOver) {
  Printed p(4);
  p.add(2, "same\n");
  EXPECT_FALSE(p.lines.tick(p.now));  // nobody else has said it: there is nothing to wait for
  p.add(3, "same\n");
  EXPECT_EQ(p.text, "[h:2] same\n");
  auto next = p.lines.tick(p.now + 999ms);
  ASSERT_TRUE(next);
  EXPECT_EQ(*next, p.now + 1000ms);
  EXPECT_FALSE(p.lines.tick(*next));
  EXPECT_EQ(p.text, "[h:2] same\n[h:2] same  ([h:3] said it too)\n");
  p.now = *next;
  p.add(1, "same\n");  // later: news again
  p.lines.flush();
  EXPECT_EQ(p.text, "[h:2] same\n[h:2] same  ([h:3] said it too)\n[h:1] same\n");
}

TEST(Lines, OfOneSourceAreNeverDropped) {
  Printed p(2);
  p.add(0, "a\na\n");
  p.add(1, "a\n");
  p.add(0, "a\n");
  p.lines.flush();
  EXPECT_EQ(p.text, "[h:0] a\n[h:0] a\n[h:0] a  ([h:1] said it too)\n[h:0] a\n");
  Printed all(2, {.dedup = false});
  all.add(0, "a\n");
  all.add(1, "a\n");
  EXPECT_EQ(all.text, "[h:0] a\n[h:1] a\n");
}

TEST(Lines, KeepFewInMind) {
  Printed p(2);
  for (int i = 0; i < 10'000; ++i) p.add(0, std::to_string(i) + "\n");
  p.text.clear();
  p.add(1, "9999\n0\n");  // the first of them is forgotten
  EXPECT_EQ(p.text, "[h:0] 9999  ([h:1] said it too)\n[h:1] 0\n");
}

TEST(Lines, ArePlainWhereNobodyLooks) {
  EXPECT_EQ(plain("\x1b[1;31mred\x1b[0m\tx"), "red\tx");
  EXPECT_EQ(plain("10 %\r50 %\r100 %\r"), "100 %");
  EXPECT_EQ(plain("a\x1b[\x07"), "a");
  EXPECT_EQ(plain("\x1b"), "");
  EXPECT_EQ(plain("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  Printed p(1, {.plain = true});
  p.add(0, "\x1b[2mx\x1b[0m\n");
  EXPECT_EQ(p.text, "[h:0] x\n");
}

}  // namespace
}  // namespace sluice
