// SPDX-License-Identifier: Apache-2.0
#include "comm/move.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "comm/hop.h"

namespace sluice {
namespace {

Mesh mesh_of(std::vector<int> sizes, int first_rank = 0) {
  Mesh mesh{.name = "m", .first_rank = first_rank};
  for (int size : sizes) mesh.axes.push_back({"a" + std::to_string(mesh.axes.size()), size});
  return mesh;
}

// "name bytes messages: types on the way" of the move that is chosen for float32.
std::string chosen(const Shape& shape, const Mesh& a, std::string_view from, const Mesh& b, std::string_view to) {
  LogicalType type{DType::float32, shape};
  PlacedType source{type, &a, parse_nd_sbp(from)}, target{type, &b, parse_nd_sbp(to)};
  auto& move = move_for(builtin_moves(), source, target);
  MoveCost cost = cost_of(move, source, target);
  std::string text =
      std::string(move.name) + " " + std::to_string(int64_t(cost.bytes)) + " " + std::to_string(int64_t(cost.messages));
  if (move.between)
    for (auto& between : move.between(source, target)) text += " " + text_of(between.sbp);
  return text;
}

TEST(MoveFor, OneAxis) {
  Mesh four = mesh_of({4});
  Shape shape = fixed_shape({512, 784});
  int64_t whole = 512 * 784 * 4;
  auto is = [&](std::string_view from, std::string_view to) { return chosen(shape, four, from, four, to); };
  auto cost = [](std::string_view name, int64_t bytes, int messages) {
    return std::string(name) + " " + std::to_string(bytes) + " " + std::to_string(messages);
  };
  EXPECT_EQ(is("(S(0))", "(B)"), cost("all_gather", 3 * whole, 12));
  EXPECT_EQ(is("(S(1))", "(B)"), cost("all_gather", 3 * whole, 12));
  EXPECT_EQ(is("(P)", "(S(0))"), cost("reduce_scatter", 3 * whole, 12));
  EXPECT_EQ(is("(P)", "(B)"), cost("all_reduce", 6 * whole, 24) + " (S(0))");
  EXPECT_EQ(is("(S(0))", "(S(1))"), cost("all_to_all", whole * 3 / 4, 12));
  EXPECT_EQ(is("(B)", "(S(0))"), cost("slice", 0, 0));
  EXPECT_EQ(is("(B)", "(P)"), cost("partial_pad", 0, 0));
  EXPECT_EQ(is("(S(1))", "(P)"), cost("partial_pad", 0, 0));
  EXPECT_EQ(is("(P(max))", "(B)"), cost("all_reduce", 6 * whole, 24) + " (S(0))");
}

TEST(MoveFor, SmallValuesAndPairsReduceInOneHop) {
  Mesh two = mesh_of({2}), four = mesh_of({4});
  EXPECT_EQ(chosen({}, four, "(P)", four, "(B)"), "all_reduce_direct 48 12");
  EXPECT_EQ(chosen(fixed_shape({3, 3}), four, "(P)", four, "(B)"), "all_reduce_direct 432 12");
  EXPECT_EQ(chosen(fixed_shape({100}), two, "(P)", two, "(B)"), "all_reduce_direct 800 2");
  EXPECT_EQ(chosen(fixed_shape({3, 10}), four, "(P)", four, "(B)"), "all_reduce 720 24 (S(1))");
  EXPECT_EQ(chosen(fixed_shape({10, 8}), four, "(P)", four, "(B)"), "all_reduce 1920 24 (S(1))") << "even pieces";
}

TEST(MoveFor, SeveralAxesAreOneReduction) {
  Mesh square = mesh_of({2, 2});
  Shape shape = fixed_shape({8, 8});
  auto is = [&](std::string_view from, std::string_view to) { return chosen(shape, square, from, square, to); };
  EXPECT_EQ(is("(P,P)", "(B,B)"), "all_reduce 1536 24 (S(0),S(0))");
  EXPECT_EQ(is("(P,S(0))", "(B,S(0))"), "all_reduce_direct 512 4");
  EXPECT_EQ(is("(P,S(0))", "(B,B)"), "reduce_first 1024 16 (S(1),S(0))");
  EXPECT_EQ(is("(S(0),B)", "(B,S(0))"), "exchange 256 2");
  EXPECT_EQ(is("(S(0),S(0))", "(S(0),B)"), "all_gather 256 4") << "inner axes leave the outer slices";
  EXPECT_EQ(is("(P,P)", "(P,B)"), "all_reduce_direct 1024 4") << "a kept axis stays partial";
}

TEST(MoveFor, BetweenMeshes) {
  Mesh two = mesh_of({2}), four = mesh_of({4}), next = mesh_of({4}, 4), one = mesh_of({1});
  Shape shape = fixed_shape({8, 8});
  EXPECT_EQ(chosen(shape, four, "(S(0))", next, "(S(0))"), "p2p 256 4") << "stages of one shape: peer to peer";
  EXPECT_EQ(chosen(shape, four, "(B)", next, "(B)"), "p2p 1024 4");
  EXPECT_EQ(chosen(shape, four, "(P)", next, "(P)"), "p2p 1024 4") << "partial values stay partial";
  EXPECT_EQ(chosen(shape, four, "(P)", next, "(B)"), "reduce_first 1792 28 (S(0))");
  EXPECT_EQ(chosen(shape, four, "(P)", one, "(B)"), "p2p 768 3");
  EXPECT_EQ(chosen(shape, four, "(B)", one, "(B)"), "p2p 0 0") << "its own copy";
  EXPECT_EQ(chosen(shape, two, "(S(1))", next, "(S(0))"), "p2p 256 8");
}

// The load of replicas is shared: between meshes each destination hears from another one.
TEST(Peers, ReplicasShareTheSending) {
  Mesh three = mesh_of({3}), next = mesh_of({6}, 3);
  PlacedType from{{}, &three, parse_nd_sbp("(B)")}, to{{}, &next, parse_nd_sbp("(B)")};
  for (int rank = 3; rank < 9; ++rank) EXPECT_EQ(peers_of(from, to, rank), std::vector<int>{rank % 3});
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(listeners_of(from, to, rank), (std::vector<int>{rank + 3, rank + 6}));
}

TEST(Peers, KindsOfReductionDoNotMix) {
  Mesh square = mesh_of({2, 2});
  PlacedType from{{}, &square, parse_nd_sbp("(P,P(max))")}, to{{}, &square, parse_nd_sbp("(B,B)")};
  EXPECT_THROW(peers_of(from, to, 0), Error);
}

TEST(Cost, GrowsWithBoundsNotWithTheWindow) {
  Mesh two = mesh_of({2});
  EXPECT_EQ(chosen({{9, batch_sym, 3}, {2}}, two, "(S(0))", two, "(B)"), "all_gather 72 2");
}

// ---- one piece ------------------------------------------------------------------------------------------------------

template <class T>
std::vector<T> added(DType dtype, Sbp::Kind reduce, std::vector<T> to, const std::vector<T>& from) {
  auto n = int64_t(to.size());
  Piece piece{.add = true, .reduce = reduce, .from = {{0, n}}, .to = {{0, n}}, .from_dims = {n}, .to_dims = {n}};
  run_piece(piece, dtype, from.data(), to.data());
  return to;
}

TEST(RunPiece, CombinesEveryDtype) {
  EXPECT_EQ(added<float>(DType::float32, Sbp::P, {1, 2.5f}, {2, -1}), (std::vector<float>{3, 1.5f}));
  EXPECT_EQ(added<double>(DType::float64, Sbp::Pmax, {1, 2}, {2, -1}), (std::vector<double>{2, 2}));
  EXPECT_EQ(added<int64_t>(DType::int64, Sbp::Pmin, {1, 2}, {2, -1}), (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(added<int32_t>(DType::int32, Sbp::P, {INT32_MAX}, {1}), (std::vector<int32_t>{INT32_MIN})) << "wraps";
  EXPECT_EQ(added<int8_t>(DType::int8, Sbp::P, {127}, {127}), (std::vector<int8_t>{-2}));
  EXPECT_EQ(added<int16_t>(DType::int16, Sbp::P, {300}, {-301}), (std::vector<int16_t>{-1}));
  EXPECT_EQ(added<uint8_t>(DType::uint8, Sbp::P, {200}, {100}), (std::vector<uint8_t>{44}));
  EXPECT_EQ(added<uint8_t>(DType::bool_, Sbp::P, {0, 0, 1, 1}, {0, 1, 0, 1}), (std::vector<uint8_t>{0, 1, 1, 1}));
  std::vector<float> many(1000, 1);
  EXPECT_EQ(added<float>(DType::float32, Sbp::P, many, many), std::vector<float>(1000, 2));
}

// 1.0 is 0x3F80 as bfloat16 and 0x3C00 as float16.
TEST(RunPiece, RoundsSixteenBitFloatsToNearestEven) {
  auto bf16 = [](uint16_t a, uint16_t b) { return added<uint16_t>(DType::bfloat16, Sbp::P, {a}, {b})[0]; };
  EXPECT_EQ(bf16(0x3F80, 0x3F80), 0x4000);
  EXPECT_EQ(bf16(0x4380, 0x3F80), 0x4380) << "256 + 1 is a tie: to even";
  EXPECT_EQ(bf16(0x4381, 0x3F80), 0x4382) << "258 + 1 is a tie: to even";
  EXPECT_EQ(bf16(0x7F7F, 0x7F7F), 0x7F80) << "overflows to infinity";
  EXPECT_EQ(bf16(0x7F80, 0xFF80) & 0x7FC0, 0x7FC0) << "infinity - infinity is NaN";
  auto f16 = [](uint16_t a, uint16_t b) { return added<uint16_t>(DType::float16, Sbp::P, {a}, {b})[0]; };
  EXPECT_EQ(f16(0x3C00, 0x3C00), 0x4000);
  EXPECT_EQ(f16(0x6800, 0x3C00), 0x6800) << "2048 + 1 is a tie: to even";
  EXPECT_EQ(f16(0x7BFF, 0x7BFF), 0x7C00) << "overflows to infinity";
}

TEST(RunPiece, NanWinsInMaximaAndMinima) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  for (auto kind : {Sbp::Pmax, Sbp::Pmin})
    for (float x : added<float>(DType::float32, kind, {nan, 1}, {1, nan})) EXPECT_TRUE(std::isnan(x));
}

TEST(RunPiece, WalksStridedBoxes) {
  std::vector<int32_t> from(2 * 3 * 5), to(4 * 4 * 4, -1);
  for (size_t i = 0; i < from.size(); ++i) from[i] = int32_t(i);
  Piece piece{
      .from = {{0, 2}, {1, 2}, {3, 2}}, .to = {{1, 2}, {0, 2}, {2, 2}}, .from_dims = {2, 3, 5}, .to_dims = {4, 4, 4}};
  run_piece(piece, DType::int32, from.data(), to.data());
  int touched = 0;
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b)
      for (int c = 0; c < 4; ++c) {
        bool inside = a >= 1 && a < 3 && b < 2 && c >= 2;
        touched += inside;
        EXPECT_EQ(to[size_t(a * 16 + b * 4 + c)], inside ? (a - 1) * 15 + (b + 1) * 5 + c + 1 : -1);
      }
  EXPECT_EQ(touched, 8);
}

TEST(RunPiece, EmptyAndScalarPieces) {
  Piece empty{.from = {{0, 0}}, .to = {{0, 0}}, .from_dims = {0}, .to_dims = {0}};
  run_piece(empty, DType::float32, nullptr, nullptr);
  double from = 5, to = 0;
  run_piece(Piece{}, DType::float64, &from, &to);
  EXPECT_EQ(to, 5);
}

// Pieces that meet are combined in one pass: the same bits as one by one, for every dtype and kind of reduction, short
// and long, aligned or not, with pieces that stand alone between them.
template <class T>
void expect_same_bits(DType dtype, Sbp::Kind reduce, int64_t n, int64_t shift, int sources) {
  std::vector<std::vector<T>> from(size_t(sources), std::vector<T>(size_t(n + shift)));
  for (size_t s = 0; s < from.size(); ++s)
    for (size_t i = 0; i < from[s].size(); ++i) from[s][i] = T((i * 7 + s * 13) % 31 * (s % 2 ? 0.37 : 1.1));
  std::vector<Piece> pieces;
  for (int s = 0; s < sources; ++s) pieces.push_back({s, s > 0, reduce, {{shift, n}}, {{1, n}}, {n + shift}, {n + 2}});
  pieces.push_back({0, false, reduce, {{0, 1}}, {{0, 1}}, {n + shift}, {n + 2}});
  std::vector<T> one(size_t(n + 2), T(5)), all = one;
  std::vector<PieceFrom> together;
  for (auto& piece : pieces) {
    run_piece(piece, dtype, from[size_t(piece.peer)].data(), one.data());
    together.push_back({&piece, from[size_t(piece.peer)].data()});
  }
  run_pieces(together, dtype, all.data());
  EXPECT_EQ(std::memcmp(one.data(), all.data(), one.size() * sizeof(T)), 0)
      << name_of(dtype) << " " << int(reduce) << " n=" << n << " shift=" << shift << " sources=" << sources;
}

TEST(Piece, ThoseThatMeetAreCombinedInOnePass) {
  for (auto reduce : {Sbp::P, Sbp::Pmax, Sbp::Pmin})
    for (int64_t n : {1, 31, 32, 33, 2048, 5000})
      for (int64_t shift : {0, 1, 3})
        for (int sources : {1, 2, 3, 5}) {
          expect_same_bits<float>(DType::float32, reduce, n, shift, sources);
          expect_same_bits<double>(DType::float64, reduce, n, shift, sources);
          expect_same_bits<int64_t>(DType::int64, reduce, n, shift, sources);
          expect_same_bits<uint16_t>(DType::bfloat16, reduce, n, shift, sources);
        }
  for (int64_t shift : {0, 1}) expect_same_bits<float>(DType::float32, Sbp::P, (int64_t(1) << 20) + 77, shift, 3);
}

}  // namespace
}  // namespace sluice
