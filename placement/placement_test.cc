// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "placement/mesh.h"
#include "placement/sbp.h"

namespace sluice {
namespace {

using Random = std::mt19937_64;

Mesh random_mesh(Random& random) {
  Mesh mesh{"main", {}, int(random() % 5)};
  for (size_t n = random() % 4; n-- > 0;) {
    auto name = std::string(1, char('a' + mesh.axes.size()));
    mesh.axes.push_back({name, 1 + int(random() % 4)});
  }
  return mesh;
}

Shape random_shape(Random& random) {
  Shape shape(1 + random() % 3);
  for (auto& dim : shape) {
    dim.sym = random() % 3 ? fixed_sym : batch_sym;
    dim.granule = dim.sym == fixed_sym ? 1 : 1 + int64_t(random() % 3);
    dim.size = dim.sym == fixed_sym ? int64_t(random() % 8) : 7 * dim.granule;  // the batch's bound is 7
  }
  return shape;
}

NdSbp random_sbp(Random& random, const Mesh& mesh, const Shape& shape) {
  NdSbp nd;
  for (size_t a = 0; a < mesh.axes.size(); ++a)
    nd.push_back(random() % 3 ? Sbp::split(int(random() % shape.size()))
                              : std::array{Sbp::broadcast(), Sbp::partial(), Sbp{Sbp::Pmax, -1}}[random() % 3]);
  return nd;
}

Window random_window(Random& random) {
  Window window;
  window.whole[batch_sym] = 20;
  window.valid[batch_sym] = {int64_t(random() % 13), int64_t(random() % 8)};
  return window;
}

// How many ranks hold each element of the window.
std::vector<int> coverage(const Shape& shape, const NdSbp& nd, const Mesh& mesh, const Window& window) {
  std::vector<int64_t> sizes;
  int64_t total = 1;
  for (auto& dim : local_box(shape, {}, mesh, {}, window).dims) {
    sizes.push_back(dim.size);
    total *= dim.size;
  }
  std::vector<int> count(static_cast<size_t>(total));
  for (int rank = mesh.first_rank; mesh.holds(rank); ++rank) {
    Box box = local_box(shape, nd, mesh, mesh.coords(rank), window);
    for (int64_t i = 0; i < total; ++i) {
      bool inside = true;
      int64_t rest = i;
      for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) {
        int64_t at = rest % sizes[d];
        inside &= at >= box.dims[d].begin && at < box.dims[d].begin + box.dims[d].size;
      }
      count[size_t(i)] += inside;
    }
  }
  return count;
}

TEST(Sbp, EveryElementLiesOnExactlyTheRanksThatShareIt) {
  Random random(1);
  for (int trial = 0; trial < 3'000; ++trial) {
    Mesh mesh = random_mesh(random);
    Shape shape = random_shape(random);
    NdSbp nd = random_sbp(random, mesh, shape);
    Window window = random_window(random);
    int copies = 1;
    for (size_t a = 0; a < nd.size(); ++a) copies *= nd[a].is_split() ? 1 : mesh.axes[a].size;
    for (int n : coverage(shape, nd, mesh, window))
      ASSERT_EQ(n, copies) << text_of(shape) << text_of(nd) << " on " << mesh.size() << " ranks";
  }
}

TEST(Sbp, NoPartExceedsItsBoundAndOneReachesIt) {
  Random random(2);
  for (int trial = 0; trial < 3'000; ++trial) {
    Mesh mesh = random_mesh(random);
    Shape shape = random_shape(random);
    NdSbp nd = random_sbp(random, mesh, shape);
    Window window = random_window(random), full = window;
    full.valid[batch_sym] = {0, 7};
    auto bound = local_bound(shape, nd, mesh);
    std::vector<int64_t> most(bound.size());
    for (int rank = mesh.first_rank; mesh.holds(rank); ++rank) {
      Box part = local_box(shape, nd, mesh, mesh.coords(rank), window);
      Box largest = local_box(shape, nd, mesh, mesh.coords(rank), full);
      for (size_t d = 0; d < bound.size(); ++d) {
        ASSERT_LE(part.dims[d].size, bound[d]);
        ASSERT_EQ(part.dims[d].size % shape[d].granule, 0);
        most[d] = std::max(most[d], largest.dims[d].size);
      }
    }
    ASSERT_EQ(most, bound) << text_of(shape) << text_of(nd);
  }
}

TEST(Sbp, UnevenAndEmptyPieces) {
  Mesh mesh{"main", {{"dp", 4}}, 0};
  auto part = [&](int64_t size, int at) { return local_box({{size}}, {Sbp::split(0)}, mesh, {at}, {}).dims[0]; };
  EXPECT_EQ(part(6, 0), (Range{0, 2}));
  EXPECT_EQ(part(6, 3), (Range{5, 1}));
  EXPECT_EQ(part(3, 3), (Range{3, 0}));
  EXPECT_EQ(part(0, 0), (Range{0, 0}));
  EXPECT_EQ(local_bound({{6}}, {Sbp::split(0)}, mesh), (std::vector<int64_t>{2}));
}

TEST(Sbp, AxesSplitOneDimOuterFirst) {
  Mesh mesh{"main", {{"dp", 2}, {"tp", 2}}, 0};
  NdSbp both{Sbp::split(0), Sbp::split(0)};
  EXPECT_EQ(local_box({{8}}, both, mesh, {0, 1}, {}).dims[0], (Range{2, 2}));
  EXPECT_EQ(local_box({{8}}, both, mesh, {1, 0}, {}).dims[0], (Range{4, 2}));
}

TEST(Sbp, BoundedDimsSplitInGranules) {
  Mesh mesh{"main", {{"dp", 2}}, 0};
  Shape shape{{12, batch_sym, 3}};
  Window window;
  window.valid[batch_sym] = {5, 3};
  EXPECT_EQ(local_box(shape, {Sbp::split(0)}, mesh, {0}, window).dims[0], (Range{0, 6}));
  EXPECT_EQ(local_box(shape, {Sbp::split(0)}, mesh, {1}, window).dims[0], (Range{6, 3}));
  EXPECT_EQ(window_origin(shape, window), (std::vector<int64_t>{15}));
}

TEST(Sbp, TextRoundTrips) {
  Random random(3);
  for (int trial = 0; trial < 2'000; ++trial) {
    NdSbp nd;
    for (size_t n = random() % 5; n-- > 0;) {
      int kind = int(random() % 5);
      nd.push_back(kind == Sbp::S ? Sbp::split(int(random() % rank_max)) : Sbp{Sbp::Kind(kind), -1});
    }
    EXPECT_EQ(parse_nd_sbp(text_of(nd)), nd) << text_of(nd);
    for (auto sbp : nd) EXPECT_EQ(parse_sbp(text_of(sbp)), sbp);
  }
  EXPECT_EQ(parse_sbp("P(sum)"), Sbp::partial());
}

TEST(Sbp, NonsenseIsRefused) {
  for (std::string_view text : {"",      "S",     "S(",  "S()", "S(8)",   "S(-1)", "S(-0)",
                                "S(+1)", "S( 1)", "S(1", "S1",  "S(1))",  "s(0)",  "S(99999999999999999999)",
                                "B ",    " B",    "b",   "P()", "P(avg)", "BB",    "B,B"})
    EXPECT_THROW(parse_sbp(text), Error) << text;
  for (std::string_view text : {"", "(", ")", ")(", "B", "(B", "B)", "(B,)", "(,B)", "(,)", "(B,,B)", "(B B)", "((B))",
                                "(B)(B)", "(S(0)", "(S(0)))", "(S(0,B)", "(B, B)"})
    EXPECT_THROW(parse_nd_sbp(text), Error) << text;
}

TEST(Sbp, RandomTextNeverCrashes) {
  Random random(4);
  static constexpr std::string_view alphabet = "SBP()(),01278maxin \n-";
  for (int trial = 0; trial < 50'000; ++trial) {
    std::string text;
    for (size_t n = random() % 16; n-- > 0;) text += alphabet[random() % alphabet.size()];
    try {
      NdSbp nd = parse_nd_sbp(text);
      EXPECT_EQ(parse_nd_sbp(text_of(nd)), nd);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::value);
    }
  }
}

TEST(Mesh, CoordinatesRoundTrip) {
  Random random(5);
  for (int trial = 0; trial < 300; ++trial) {
    Mesh mesh = random_mesh(random);
    for (int rank = mesh.first_rank; mesh.holds(rank); ++rank) EXPECT_EQ(mesh.rank_at(mesh.coords(rank)), rank);
    EXPECT_FALSE(mesh.holds(mesh.first_rank - 1));
    EXPECT_FALSE(mesh.holds(mesh.first_rank + mesh.size()));
  }
}

TEST(Mesh, TheLastAxisIsInnermost) {
  Mesh mesh{"main", {{"dp", 2}, {"tp", 3}}, 10};
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.coords(14), (std::vector<int>{1, 1}));
  EXPECT_EQ(mesh.rank_at({0, 2}), 12);
  EXPECT_EQ(mesh.axis("tp"), 1);
  EXPECT_EQ(mesh.axis("pp"), -1);
  EXPECT_EQ((Mesh{"one", {}, 3}).size(), 1);
  EXPECT_DEATH(mesh.coords(16), "does not hold");
}

}  // namespace
}  // namespace sluice
