// SPDX-License-Identifier: Apache-2.0
// Element types, shapes, windows, errors, words and the random numbers.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

#include "base/dtype.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/shape.h"
#include "base/text.h"

namespace sluice {
namespace {

// The published known-answer vectors of Random123 (kat_vectors, philox4x32 10).
static_assert(philox({0, 0, 0, 0}, 0, 0) == Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u) == Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
              Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
// FNV-1a's published values.
static_assert(name_hash("") == 0xcbf29ce484222325ull);
static_assert(name_hash("a") == 0xaf63dc4c8601ec8cull);
static_assert(name_hash("foobar") == 0x85944171f73967e8ull);

TEST(Philox, AnElementIsAPartOfItsBlock) {
  RandomKey key{7, name_hash("dropout"), 3};
  for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(key.bits(i), key.block(i / 4)[i % 4]);
}

TEST(Philox, KeysAndIndicesGiveDifferentNumbers) {
  std::set<Philox4> seen;
  for (uint64_t seed : {0ull, 1ull, 1ull << 32})
    for (uint64_t op : {uint64_t(0), name_hash("a"), name_hash("b")})
      for (int64_t step : {0, 1, 2})
        for (uint64_t block : {0ull, 1ull, 1ull << 32}) seen.insert(RandomKey{seed, op, step}.block(block));
  EXPECT_EQ(seen.size(), 81u);
}

TEST(Philox, UniformIsInRangeEvenAndExactInFloat) {
  RandomKey key{1, 2, 3};
  double sum = 0;
  constexpr int n = 100'000;
  for (int i = 0; i < n; ++i) {
    double u = key.uniform(uint64_t(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ASSERT_EQ(double(float(u)), u);
    sum += u;
  }
  EXPECT_NEAR(sum / n, 0.5, 0.005);
}

TEST(DType, NamesParseBackAndSizesAgree) {
  for (size_t i = 0; i < dtype_names.size(); ++i) {
    DType t = DType(i);
    EXPECT_EQ(parse_dtype(name_of(t)), t);
    EXPECT_FALSE(is_float(t) && is_integer(t));
    EXPECT_EQ(is_float(t) || is_integer(t), t != DType::bool_);
    bool visited = visit_dtype(t, [&](auto tag) {
      using T = typename decltype(tag)::type;
      EXPECT_EQ(int64_t(sizeof(T)), bytes_of(t)) << name_of(t);
      EXPECT_EQ(dtype_of<T>(), t);
      EXPECT_EQ(std::is_floating_point_v<T>, is_float(t));
    });
    EXPECT_EQ(visited, t != DType::bfloat16 && t != DType::float16) << name_of(t);
  }
  for (std::string_view name : {"", "float", "Float32", "float32 ", "bool_"}) EXPECT_FALSE(parse_dtype(name)) << name;
}

TEST(Shape, TextAndNumel) {
  Shape shape{{128, batch_sym, 2}, {784}};
  EXPECT_EQ(text_of(shape), "[128b*2,784]");
  EXPECT_EQ(text_of(Shape{}), "[]");
  EXPECT_EQ(numel(shape), 128 * 784);
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(sizes_of(shape), (std::vector<int64_t>{128, 784}));
  constexpr int64_t huge = int64_t(1) << 32;
  EXPECT_THROW(numel(fixed_shape({huge, huge})), Error);
  EXPECT_THROW(numel(fixed_shape({-1})), Error);
  EXPECT_THROW(numel(fixed_shape({std::numeric_limits<int64_t>::min(), -1})), Error);
}

TEST(Shape, PiecesAreBalancedAndTile) {
  for (int64_t size : {0, 1, 2, 7, 64, 101})
    for (int64_t n : {1, 2, 3, 7, 64}) {
      int64_t at = 0, least = size, most = 0;
      for (int64_t i = 0; i < n; ++i) {
        Range piece = piece_of(size, n, i);
        EXPECT_EQ(piece.begin, at);
        at += piece.size;
        least = std::min(least, piece.size);
        most = std::max(most, piece.size);
      }
      EXPECT_EQ(at, size);
      EXPECT_LE(most - least, 1);
      EXPECT_EQ(most, piece_bound(size, n));
    }
}

TEST(Shape, MicroBatchesTileTheBatch) {
  for (int64_t extent : {0, 1, 5, 128}) {
    SlotHeader header{.micro_batches = 4};
    header.extent[batch_sym] = extent;
    int64_t at = 0;
    for (header.micro_batch = 0; header.micro_batch < 4; ++header.micro_batch) {
      Window window = window_of(header);
      EXPECT_EQ(window.whole[batch_sym], extent);
      EXPECT_EQ(window.valid[batch_sym].begin, at);
      at += window.valid[batch_sym].size;
    }
    EXPECT_EQ(at, extent);
    EXPECT_EQ(whole_window(header.extent).valid[batch_sym], (Range{0, extent}));
  }
}

TEST(Error, SaysWhereWhatAndNext) {
  Error error(Code::value, "no such key", {"parallel.toml", 7}, "did you mean 'axes'?");
  EXPECT_STREQ(error.what(), "parallel.toml:7: no such key\n  next: did you mean 'axes'?");
  EXPECT_EQ(error.message(), "no such key");
  EXPECT_STREQ(Error(Code::io, "lost").what(), "lost");
  EXPECT_STREQ(Error(Code::io, "lost").at({"a.py", 1}).what(), "a.py:1: lost");
  EXPECT_STREQ(error.at({"a.py", 1}).what(), error.what());
  EXPECT_DEATH(check(false, "slots are counted"), "slots are counted");
}

TEST(Text, WordsAreQuotedOnlyWhereNeeded) {
  EXPECT_EQ(word_of("fc1.weight"), "fc1.weight");
  EXPECT_EQ(word_of(""), "\"\"");
  EXPECT_EQ(word_of("a b"), "\"a b\"");
  EXPECT_EQ(word_of("a=b"), "\"a=b\"");
  EXPECT_EQ(word_of(std::string_view("\0\x7f", 2)), "\"\\x00\\x7f\"");
}

TEST(Text, EveryByteComesBack) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 10'000; ++i) {
    std::string s;
    for (size_t n = random() % 20; n-- > 0;) s += char(random() % 256);
    EXPECT_EQ(unquote(quote(s)), s);
  }
}

}  // namespace
}  // namespace sluice
