// SPDX-License-Identifier: Apache-2.0
#include "kernels/random.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/call_for_test.h"

namespace sluice {
namespace {

TEST(RandomBits, EqualTheGeneratorAtAnyStartAndLength) {
  RandomKey key{0x0123456789abcdef, 42, 7};
  for (uint64_t first : {uint64_t(0), uint64_t(1), uint64_t(3), uint64_t(4), (uint64_t(1) << 34) - 7})
    for (int64_t n : {0, 1, 2, 3, 4, 5, 63, 64, 65, 200}) {
      std::vector<uint32_t> bits(size_t(n) + 1, 99);
      random_bits(key, first, n, bits.data());
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(bits[size_t(i)], key.bits(first + uint64_t(i))) << first << " " << i;
      ASSERT_EQ(bits[size_t(n)], 99u);
    }
}

// Every box of a 3-d tensor draws the numbers that the whole tensor has there.
void expect_boxes_equal_whole(std::string_view op, DType dtype) {
  std::vector<int64_t> sizes{5, 4, 3};
  for (int threads : {1, 3}) {
    Runner run;
    run.threads = threads;
    run.attrs = {{"shape", fixed_shape(sizes)}, {"dtype", dtype}};
    Value whole = run(op, {})[0];
    size_t bytes = size_t(bytes_of(dtype));
    for (int64_t a = 0; a <= 5; a += 1)
      for (int64_t b = 0; b <= 4; b += 2)
        for (int64_t c = 0; c <= 3; c += 3) {
          std::vector<int64_t> origin{5 - a, (4 - b) / 2, 3 - c};
          Value part = Value::part(whole.type, {a, b, c}, origin);
          run.run(op, {}, {&part});
          for (int64_t i = 0; i < a * b * c; ++i) {
            int64_t x = origin[0] + i / (b * c), y = origin[1] + i / c % b, z = origin[2] + i % c;
            ASSERT_EQ(
                std::memcmp(&part.bytes[size_t(i) * bytes], &whole.bytes[size_t((x * 4 + y) * 3 + z) * bytes], bytes),
                0)
                << op << " box " << a << "," << b << "," << c << " element " << i;
          }
        }
  }
}

TEST(Generators, ABoxDrawsWhatTheWholeTensorHas) {
  for (DType dtype : {DType::float32, DType::float64})
    for (auto* op : {"uniform", "normal"}) expect_boxes_equal_whole(op, dtype);
}

TEST(Generators, FloatsAreRoundedDoubles) {
  Runner run;
  for (auto* op : {"uniform", "normal"}) {
    run.attrs = {{"shape", fixed_shape({100})}, {"dtype", DType::float64}};
    auto wide = run(op, {})[0].as<double>();
    run.attrs[1].value = DType::float32;
    auto narrow = run(op, {})[0].as<float>();
    for (size_t i = 0; i < 100; ++i) EXPECT_EQ(narrow[i], float(wide[i]));
  }
}

struct Moments {
  double mean = 0, variance = 0, low = 1e300, high = -1e300;
};
Moments moments_of(const std::vector<float>& values) {
  Moments m;
  for (double v : values) m.mean += v, m.low = std::min(m.low, v), m.high = std::max(m.high, v);
  m.mean /= double(values.size());
  for (double v : values) m.variance += (v - m.mean) * (v - m.mean);
  m.variance /= double(values.size());
  return m;
}

TEST(Generators, HaveTheirMoments) {
  Runner run;
  run.attrs = {{"shape", fixed_shape({300, 1000})}, {"low", -2.0}, {"high", 4.0}};
  auto m = moments_of(run("uniform", {})[0].as<float>());
  EXPECT_NEAR(m.mean, 1, 0.02);
  EXPECT_NEAR(m.variance, 3, 0.03);
  EXPECT_GE(m.low, -2);
  EXPECT_LT(m.high, 4);
  run.attrs = {{"shape", fixed_shape({300, 1000})}, {"mean", 1.0}, {"std", 3.0}};
  m = moments_of(run("normal", {})[0].as<float>());
  EXPECT_NEAR(m.mean, 1, 0.03);
  EXPECT_NEAR(m.variance, 9, 0.1);
}

TEST(Generators, RoundingDoesNotReachTheUpperEnd) {
  Runner run;
  run.attrs = {{"shape", fixed_shape({100000})}, {"low", 1e7}, {"high", 1e7 + 1}};
  for (float v : run("uniform", {})[0].as<float>()) ASSERT_LT(v, 1e7f + 1);
}

TEST(Generators, SeedStepAndKeyChangeTheNumbers) {
  Runner run;
  run.attrs = {{"shape", fixed_shape({16})}};
  auto base = run("uniform", {})[0].as<float>();
  EXPECT_EQ(run("uniform", {})[0].as<float>(), base);
  run.step = 1;
  EXPECT_NE(run("uniform", {})[0].as<float>(), base);
  run.step = 0;
  run.seed = 2;
  EXPECT_NE(run("uniform", {})[0].as<float>(), base);
  run.seed = 1;
  run.node = "other";
  EXPECT_NE(run("uniform", {})[0].as<float>(), base);
  run.attrs.push_back({"key", std::string("node")});
  EXPECT_EQ(run("uniform", {})[0].as<float>(), base);
}

TEST(Dropout, KeepsAnElementByTheNumberOfItsIndex) {
  Runner run;
  run.attrs = {{"p", 0.3}};
  auto out = run("dropout", {Value::of({100, 1000}, std::vector<float>(100000, 2))})[0].as<float>();
  RandomKey key{run.seed, name_hash(run.node), run.step};
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], key.uniform(i) < 0.3 ? 0.f : 2 * float(1 / 0.7)) << i;
  EXPECT_NEAR(double(std::count(out.begin(), out.end(), 0.f)), 30000, 600);
}

TEST(Dropout, EndsOfTheRange) {
  Runner run;
  std::vector<double> x(50, 3);
  run.attrs = {{"p", 0.0}};
  EXPECT_EQ(run("dropout", {Value::of({50}, x)})[0].as<double>(), x);
  run.attrs = {{"p", 1.0}};
  EXPECT_EQ(run("dropout", {Value::of({50}, x)})[0].as<double>(), std::vector<double>(50, 0));
  for (double p : {-0.1, 1.1, std::nan("")}) {
    run.attrs = {{"p", p}};
    EXPECT_THROW(run("dropout", {Value::of({50}, x)}), Error) << p;
  }
}

TEST(Dropout, APartHasTheMaskOfTheWhole) {
  Runner run;
  Value x = Value::of({6, 40}, std::vector<float>(240, 1)), whole = run("dropout", {x})[0];
  auto mask = whole.as<float>();
  Value in = Value::part(x.type, {2, 13}, {3, 21}), out = Value::part(x.type, {2, 13}, {3, 21});
  std::fill_n(in.view().as<float>(), 26, 1.f);
  run.threads = 4;
  run.run("dropout", {&in}, {&out});
  auto part = out.as<float>();
  for (int64_t i = 0; i < 26; ++i) EXPECT_EQ(part[size_t(i)], mask[size_t((3 + i / 13) * 40 + 21 + i % 13)]);
  run.run("dropout", {&in}, {&in});  // in place
  EXPECT_EQ(in.as<float>(), part);
}

}  // namespace
}  // namespace sluice
