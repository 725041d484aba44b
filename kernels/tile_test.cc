// SPDX-License-Identifier: Apache-2.0
// Element-wise ops, reductions and strided copies on sizes that reach every loop, with threads, against plain loops.
#include "kernels/tile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace sluice {
namespace {

// An op run on float32 tensors of fixed shapes.
struct Floats {
  std::vector<int64_t> dims;
  std::vector<float> data;

  explicit Floats(std::vector<int64_t> sizes, uint32_t seed = 0) : dims(std::move(sizes)) {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    data.resize(size_t(n));
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> real(0.5f, 2.f);
    for (float& x : data) x = real(random);
  }
  View view() {
    View view;
    view.data = data.data();
    view.rank = int(dims.size());
    for (size_t d = 0; d < dims.size(); ++d) view.dims[d] = dims[d];
    return view;
  }
};

Floats run(std::string_view name, std::vector<Floats> in, const Attrs& given = {}, int threads = 1) {
  OpTable table({builtin_ops().begin(), builtin_ops().end()});
  const OpDef& op = table.at(name);
  Attrs attrs = complete_attrs(op, given);
  std::vector<LogicalType> in_types;
  std::vector<View> in_views;
  for (auto& tensor : in) {
    in_types.push_back({DType::float32, fixed_shape(tensor.dims)});
    in_views.push_back(tensor.view());
  }
  auto out_types = infer_types(op, in_types, attrs);
  Floats out(sizes_of(out_types[0].shape));
  std::vector<View> out_views{out.view()};
  Call call;
  call.in = in_views;
  call.out = out_views;
  call.in_types = in_types;
  call.out_types = out_types;
  call.attrs = &attrs;
  call.threads = threads;
  run_cpu(op, call);
  return out;
}

// The element of a broadcast operand for output element `at`.
float at(const Floats& x, const std::vector<int64_t>& out, int64_t at) {
  int64_t offset = 0, step = 1;
  for (size_t d = out.size(), e = x.dims.size(); d-- > 0;) {
    int64_t i = at % out[d];
    at /= out[d];
    if (e == 0) continue;
    if (x.dims[--e] != 1) offset += i * step;
    step *= x.dims[e];
  }
  return x.data[size_t(offset)];
}

TEST(Tile, BroadcastsLikeNestedLoops) {
  std::vector<std::vector<std::vector<int64_t>>> shapes{{{}, {}},
                                                        {{1}, {}},
                                                        {{7}, {7}},
                                                        {{1000}, {1}},
                                                        {{3, 700}, {700}},
                                                        {{3, 700}, {3, 1}},
                                                        {{5, 1}, {1, 9}},
                                                        {{2, 3, 4}, {3, 1}},
                                                        {{2, 1, 4}, {1, 3, 1}},
                                                        {{2, 3, 1, 5}, {4, 5}},
                                                        {{0, 3}, {3}},
                                                        {{3, 0}, {3, 1}},
                                                        {{1, 1, 1}, {6}},
                                                        {{2, 2, 2, 2}, {2, 1, 2, 1}},
                                                        {{513}, {513}},
                                                        {{300, 400}, {400}},
                                                        {{400, 300}, {400, 1}}};
  for (auto& pair : shapes)
    for (int threads : {1, 3})
      for (bool swapped : {false, true}) {
        Floats x(pair[swapped], 1), y(pair[!swapped], 2);
        Floats sum = run("subtract", {x, y}, {}, threads);
        for (size_t i = 0; i < sum.data.size(); ++i)
          ASSERT_EQ(sum.data[i], at(x, sum.dims, int64_t(i)) - at(y, sum.dims, int64_t(i)));
      }
}

TEST(Tile, ThreadsAndPositionsChangeNoBit) {
  Floats x({200'003}, 3);
  for (auto name : {"exp", "log", "tanh", "sqrt", "relu"}) {
    Floats one = run(name, {x}), many = run(name, {x}, {}, 4);
    EXPECT_EQ(one.data, many.data) << name;
    // Whether an element stands in a full vector or in the rest of a row.
    for (int64_t n : {1, 2, 3, 5, 9}) {
      Floats part({n});
      std::copy_n(x.data.begin(), n, part.data.begin());
      Floats result = run(name, {part});
      for (size_t i = 0; i < result.data.size(); ++i) EXPECT_EQ(result.data[i], one.data[i]) << name;
    }
  }
}

TEST(Tile, NaNIsNotSwallowed) {
  Floats x({3});
  x.data = {std::numeric_limits<float>::quiet_NaN(), 1, -1};
  for (auto name : {"relu", "abs", "sign", "exp", "log", "tanh", "sqrt", "max", "min", "sum", "mean"})
    EXPECT_TRUE(std::isnan(run(name, {x}).data[0])) << name;
  Floats y({3});
  for (auto name : {"maximum", "minimum"}) {
    EXPECT_TRUE(std::isnan(run(name, {x, y}).data[0])) << name;
    EXPECT_TRUE(std::isnan(run(name, {y, x}).data[0])) << name;
  }
}

TEST(Reduce, AgreesWithPlainLoopsForEveryMixOfDims) {
  std::vector<std::vector<int64_t>> shapes{{5}, {3, 4}, {70, 600}, {600, 70}, {2, 3, 4}, {3, 1, 5, 2}, {4, 130, 3, 5}};
  for (auto& shape : shapes)
    for (uint32_t mask = 1; mask < (1u << shape.size()); ++mask) {
      Floats x(shape, mask);
      std::vector<int64_t> axis;
      for (size_t d = 0; d < shape.size(); ++d)
        if (mask >> d & 1) axis.push_back(int64_t(d));
      Floats sum = run("sum", {x}, {{"axis", axis}, {"keepdims", true}});
      std::vector<double> want(sum.data.size(), 0.0);
      for (size_t i = 0; i < x.data.size(); ++i) {
        int64_t rest = int64_t(i), offset = 0, step = 1;
        for (size_t d = shape.size(); d-- > 0;) {
          offset += (mask >> d & 1) ? 0 : rest % shape[d] * step;
          step *= (mask >> d & 1) ? 1 : shape[d];
          rest /= shape[d];
        }
        want[size_t(offset)] += x.data[i];
      }
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(sum.data[i], want[i], 1e-5 * want[i]) << mask;
    }
}

TEST(Reduce, LongSumsStayAccurateAndDoNotDependOnThreads) {
  for (auto shape : {std::vector<int64_t>{2'000'000}, {200'000, 10}, {10, 200'000}}) {
    for (int64_t axis : {int64_t(0), int64_t(shape.size()) - 1}) {
      Floats x(shape, 9);
      std::fill(x.data.begin(), x.data.end(), 0.1f);
      Attrs attrs{{"axis", std::vector<int64_t>{axis}}};
      Floats one = run("sum", {x}, attrs), many = run("sum", {x}, attrs, 4);
      EXPECT_EQ(one.data, many.data);
      double want = double(shape[size_t(axis)]) * double(0.1f);
      EXPECT_NEAR(one.data[0], want, want * 1e-5);
    }
  }
}

TEST(Strided, TransposesAndPermutesWithThreads) {
  Floats x({130, 517}, 4);
  for (int threads : {1, 3}) {
    Floats t = run("matrix_transpose", {x}, {}, threads);
    for (int64_t i = 0; i < 130; ++i)
      for (int64_t j = 0; j < 517; ++j) ASSERT_EQ(t.data[size_t(j * 130 + i)], x.data[size_t(i * 517 + j)]);
    Floats y({6, 50, 300}, 5);
    Floats p = run("permute_dims", {y}, {{"axes", std::vector<int64_t>{2, 0, 1}}}, threads);
    for (int64_t i = 0; i < 6; ++i)
      for (int64_t j = 0; j < 50; ++j)
        for (int64_t k = 0; k < 300; ++k)
          ASSERT_EQ(p.data[size_t((k * 6 + i) * 50 + j)], y.data[size_t((i * 50 + j) * 300 + k)]);
    Floats column({40, 1}, 6), b = run("broadcast_to", {column}, {{"shape", fixed_shape({30, 40, 50})}}, threads);
    for (int64_t i = 0; i < 30 * 40 * 50; ++i) ASSERT_EQ(b.data[size_t(i)], column.data[size_t(i / 50 % 40)]);
  }
}

}  // namespace
}  // namespace sluice
