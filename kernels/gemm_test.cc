// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "kernels/parallel.h"

namespace sluice {
namespace {

template <class T>
std::vector<T> random_matrix(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> m(size_t(n), T{});
  for (auto& v : m) v = T(int64_t(random() % 17) - 8);  // small integers: every order of summing gives the same
  return m;
}

template <class T>
void expect_product(const Gemm& s, int threads) {
  auto a = random_matrix<T>(s.m * s.k, 1), b = random_matrix<T>(s.k * s.n, 2);
  std::vector<T> out(size_t(s.m * s.n), T(99));
  gemm(dtype_of<T>(), s, a.data(), b.data(), out.data(), threads);
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      T sum = 0;
      for (int64_t l = 0; l < s.k; ++l)
        sum += a[size_t(s.a_col ? l * s.m + i : i * s.k + l)] * b[size_t(s.b_col ? j * s.k + l : l * s.n + j)];
      ASSERT_EQ(out[size_t(i * s.n + j)], sum) << s.m << "x" << s.n << "x" << s.k << " col " << s.a_col << s.b_col
                                               << " threads " << threads << " at " << i << "," << j;
    }
}

TEST(Gemm, AllLayoutsSizesAndThreads) {
  for (int threads : {1, 3})
    for (bool a_col : {false, true})
      for (bool b_col : {false, true})
        for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                               {0, 3, 2},
                               {3, 0, 2},
                               {3, 4, 0},
                               {0, 0, 0},
                               {17, 5, 9},
                               {130, 70, 150},
                               {70, 130, 150},
                               {1, 300, 400},
                               {300, 1, 400}}) {
          expect_product<float>({m, n, k, a_col, b_col}, threads);
          expect_product<double>({m, n, k, a_col, b_col}, threads);
        }
}

TEST(Gemm, IntegersWrap) {
  expect_product<int32_t>({5, 6, 7, true, false}, 1);
  expect_product<int64_t>({5, 6, 7, false, true}, 2);
  int8_t a = 100, b = 3, out = 0;
  gemm(DType::int8, {1, 1, 1}, &a, &b, &out, 1);
  EXPECT_EQ(out, int8_t(300));
}

TEST(Gemm, GarbageInTheOutputDoesNotMatter) {
  std::vector<float> a(64, 1), b(64, 1), out(64, NAN);
  gemm(DType::float32, {8, 8, 8}, a.data(), b.data(), out.data(), 1);
  for (float v : out) EXPECT_EQ(v, 8);
}

// How many threads of this process exist.
int threads_of_process() {
  int count = 0;
  if (FILE* status = fopen("/proc/self/status", "r")) {
    char line[256];
    while (fgets(line, sizeof line, status)) sscanf(line, "Threads: %d", &count);
    fclose(status);
  }
  return count;
}

TEST(Gemm, OneThreadStartsNoTeam) {
  std::thread([] {
    std::vector<float> a(512 * 512, 1), out(512 * 512);
    int before = threads_of_process();
    gemm(DType::float32, {512, 512, 512}, a.data(), a.data(), out.data(), 1);
    EXPECT_EQ(threads_of_process(), before);
    gemm(DType::float32, {512, 512, 512}, a.data(), a.data(), out.data(), 2);
    EXPECT_EQ(threads_of_process(), before + 1);
  }).join();
}

TEST(Gemm, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([i] {
      for (int round = 0; round < 5; ++round) expect_product<float>({64 + i, 80, 96, i % 2 == 0, false}, 1 + i % 2);
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace sluice
