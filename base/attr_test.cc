// SPDX-License-Identifier: Apache-2.0
#include "base/attr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace sluice {
namespace {

void round_trips(const AttrValue& value) {
  std::string text = text_of(value);
  AttrValue again;
  ASSERT_NO_THROW(again = parse_attr(text)) << text;
  EXPECT_EQ(again.index(), value.index()) << text;
  EXPECT_TRUE(again == value) << text << " came back as " << text_of(again);
  EXPECT_EQ(text_of(again), text);
}

TEST(Attr, EachKindHasItsText) {
  EXPECT_EQ(text_of(AttrValue(true)), "true");
  EXPECT_EQ(text_of(AttrValue(int64_t(-3))), "-3");
  EXPECT_EQ(text_of(AttrValue(2.0)), "2.0");
  EXPECT_EQ(text_of(AttrValue(1e22)), "1e+22");
  EXPECT_EQ(text_of(AttrValue(-0.0)), "-0.0");
  EXPECT_EQ(text_of(AttrValue(std::string("a \"b\"\n\\n"))), R"("a \"b\"\n\\n")");
  EXPECT_EQ(text_of(AttrValue(std::vector<int64_t>{})), "[]");
  EXPECT_EQ(text_of(AttrValue(Shape{{128, batch_sym, 2}, {784}})), "shape[128b*2,784]");
  EXPECT_EQ(text_of(AttrValue(DType::bool_)), "dtype:bool");
}

TEST(Attr, EdgesOfNumbersRoundTrip) {
  using Reals = std::numeric_limits<double>;
  for (double v : {0.0, -0.0, 1.0, 1e15, 1e16, 1e17, 1e22, 1e-5, 0.1, 1.0 / 3, Reals::max(), Reals::min(),
                   Reals::denorm_min(), Reals::epsilon(), Reals::infinity(), -Reals::infinity()}) {
    round_trips(v);
    EXPECT_EQ(std::signbit(std::get<double>(parse_attr(text_of(AttrValue(v))))), std::signbit(v));
  }
  EXPECT_TRUE(std::isnan(std::get<double>(parse_attr(text_of(AttrValue(Reals::quiet_NaN()))))));
  EXPECT_TRUE(std::isnan(std::get<double>(parse_attr(text_of(AttrValue(-Reals::quiet_NaN()))))));
  for (int64_t v : {int64_t(0), std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()})
    round_trips(v);
}

std::string random_bytes(std::mt19937_64& random) {
  static constexpr std::string_view favourites = "\"\\n\nrtx0,[]{}=:.einf \t\r";
  std::string s;
  for (size_t n = random() % 12; n-- > 0;)
    s += random() % 3 ? favourites[random() % favourites.size()] : char(random() % 256);
  return s;
}

AttrValue random_value(std::mt19937_64& random) {
  switch (random() % 7) {
    case 0: return bool(random() % 2);
    case 1: return int64_t(random());
    case 2: {
      double v = std::bit_cast<double>(random());
      return std::isnan(v) ? 0.5 : v;
    }
    case 3: return random_bytes(random);
    case 4: {
      std::vector<int64_t> v(random() % 5);
      for (auto& i : v) i = int64_t(random());
      return v;
    }
    case 5: {
      Shape shape(random() % 5);
      for (auto& dim : shape) {
        dim.sym = int32_t(random() % syms_max);
        dim.granule = dim.sym == fixed_sym ? 1 : 1 + int64_t(random() % 9);
        dim.size = dim.granule * int64_t(random() % 1000);
      }
      return shape;
    }
    default: return DType(random() % dtype_names.size());
  }
}

TEST(Attr, AnyValueRoundTrips) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) round_trips(random_value(random));
}

TEST(Attr, TextIsOneLineWithoutControlBytes) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2'000; ++i)
    for (char c : text_of(AttrValue(random_bytes(random)))) EXPECT_FALSE(uint8_t(c) < 32 || c == 127);
}

TEST(Attr, NonsenseIsRefused) {
  for (std::string_view text : {"",
                                "[",
                                "]",
                                "[1,]",
                                "[,]",
                                "[,1]",
                                "[1 2]",
                                "[1.5]",
                                "shape[",
                                "shape",
                                "shape[b]",
                                "shape[3*2]",
                                "shape[5b*2]",
                                "shape[4b*0]",
                                "shape[-1]",
                                "shape[4e]",
                                "shape[4a]",
                                "shape[1,1,1,1,1,1,1,1,1]",
                                "dtype:",
                                "dtype:float8",
                                "\"",
                                "\"a",
                                "a\"",
                                "\"a\"b\"",
                                "\"a\\\"",
                                "\"\\q\"",
                                "\"\\x1\"",
                                "\"\\xGG\"",
                                "1e999",
                                "1.5.5",
                                "0x10",
                                "+3",
                                " 3",
                                "3 ",
                                "True",
                                "none",
                                "9223372036854775808",
                                "1,2",
                                "fine"})
    EXPECT_THROW(parse_attr(text), Error) << text;
}

TEST(Attr, RandomTextNeverCrashes) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = text_of(random_value(random));
    for (size_t flips = 1 + random() % 3; flips-- > 0;) text[random() % text.size()] = char(random() % 256);
    try {
      AttrValue value = parse_attr(text.substr(0, random() % (text.size() + 1)));
      if (auto* real = std::get_if<double>(&value); !real || !std::isnan(*real)) round_trips(value);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::value);
    }
  }
}

TEST(Attr, FindsByName) {
  Attrs attrs{{"axis", std::vector<int64_t>{0}}, {"keepdims", true}};
  EXPECT_EQ(find_attr(attrs, "none"), nullptr);
  EXPECT_TRUE(attr<bool>(attrs, "keepdims"));
  EXPECT_DEATH(attr<bool>(attrs, "axis"), "another type");
  EXPECT_DEATH(attr<bool>(attrs, "none"), "absent");
}

}  // namespace
}  // namespace sluice
