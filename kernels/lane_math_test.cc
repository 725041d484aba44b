// SPDX-License-Identifier: Apache-2.0
#include "kernels/lane_math.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

// The distance to the exact value in units of the last place of the nearest float.
double ulps(float have, double want) {
  auto near = float(want);
  if (std::isnan(want)) return std::isnan(have) ? 0 : 1e9;
  if (std::isinf(near) || std::isinf(have)) return near == have ? 0 : 1e9;
  double unit = std::max<double>(std::nextafter(std::abs(near), INFINITY) - std::abs(near), 1.401298464324817e-45);
  return std::abs(double(have) - want) / unit;
}

// The worst error over floats of every exponent and both signs, `step` bit patterns apart.
template <class F, class G>
double worst(F f, G exact, uint32_t step = 1009) {
  double most = 0;
  for (uint64_t bits = 0; bits < (1ull << 32); bits += step) {
    float x = std::bit_cast<float>(uint32_t(bits));
    most = std::max(most, ulps(f(x), exact(double(x))));
  }
  return most;
}

TEST(LaneMath, Float32IsWithinTwoUlp) {
  EXPECT_LE(worst([](float x) { return lane_exp(x); }, [](double x) { return std::exp(x); }), 2);
  EXPECT_LE(worst([](float x) { return lane_log(x); }, [](double x) { return std::log(x); }), 2);
  EXPECT_LE(worst([](float x) { return lane_tanh(x); }, [](double x) { return std::tanh(x); }), 2);
}

// The sample above has few numbers where these functions are used most.
TEST(LaneMath, Float32IsWithinTwoUlpNearZeroAndOne) {
  double most = 0;
  for (int i = -400'000; i <= 400'000; ++i) {
    float x = float(i) * 2.5e-5f;
    most = std::max({most, ulps(lane_exp(x), std::exp(double(x))), ulps(lane_tanh(x), std::tanh(double(x)))});
    if (x > 0) most = std::max(most, ulps(lane_log(x), std::log(double(x))));
  }
  EXPECT_LE(most, 2);
}

TEST(LaneMath, EndsOfTheRange) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(lane_exp(-infinity), 0.f);
  EXPECT_EQ(lane_exp(infinity), infinity);
  EXPECT_EQ(lane_exp(0.f), 1.f);
  EXPECT_EQ(lane_log(0.f), -infinity);
  EXPECT_EQ(lane_log(1.f), 0.f);
  EXPECT_EQ(lane_log(infinity), infinity);
  EXPECT_TRUE(std::isnan(lane_log(-1.f)));
  EXPECT_EQ(lane_tanh(infinity), 1.f);
  EXPECT_EQ(lane_tanh(-infinity), -1.f);
  EXPECT_TRUE(std::isnan(lane_tanh(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace sluice
