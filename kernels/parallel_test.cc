// SPDX-License-Identifier: Apache-2.0
#include "kernels/parallel.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace sluice {
namespace {

TEST(ParallelFor, VisitsEachIndexOnce) {
  for (int threads : {0, 1, 2, 3, 8})
    for (int64_t n : {0, 1, 2, 7, 64, 1000})
      for (int64_t grain : {0, 1, 10, 5000})
        for (int64_t unit : {1, 16}) {
          std::vector<int> visits(size_t(n), 0);
          std::atomic<int> calls = 0;
          parallel_for(
              threads, n, grain,
              [&](int64_t begin, int64_t end) {
                ++calls;
                EXPECT_LT(begin, end);
                EXPECT_EQ(begin % unit, 0);
                for (int64_t i = begin; i < end; ++i) ++visits[size_t(i)];
              },
              unit);
          EXPECT_EQ(visits, std::vector<int>(size_t(n), 1)) << threads << " " << n << " " << grain << " " << unit;
          EXPECT_LE(calls, std::max(threads, 1));
        }
}

TEST(ParallelFor, OneThreadStaysOnTheCaller) {
  auto caller = std::this_thread::get_id();
  parallel_for(1, 1000, 1, [&](int64_t, int64_t) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_FALSE(omp_in_parallel());
  });
}

TEST(ParallelFor, AFailureReachesTheCaller) {
  for (int threads : {1, 4})
    EXPECT_THROW(parallel_for(threads, 100, 1,
                              [](int64_t begin, int64_t end) {
                                if (begin <= 99 && 99 < end) throw std::runtime_error("planted");
                              }),
                 std::runtime_error);
}

TEST(ParallelFor, WritesAreSeenAfterIt) {
  std::vector<int64_t> values(10000);
  for (int round = 0; round < 50; ++round) {
    for (auto& v : values) v += 1;
    parallel_for(4, int64_t(values.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[size_t(i)] += i;
    });
  }
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], 50 + 50 * int64_t(i));
}

}  // namespace
}  // namespace sluice
