// SPDX-License-Identifier: Apache-2.0
// The index rule on made-up ops: shapes, signatures and refusals as text.
#include "kernels/rule.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

LogicalType type(std::string_view shape, DType dtype = DType::float32) {
  return {dtype, std::get<Shape>(parse_attr("shape" + std::string(shape)))};
}

std::vector<LogicalType> types(std::initializer_list<std::string_view> shapes) {
  std::vector<LogicalType> list;
  for (auto shape : shapes) list.push_back(type(shape));
  return list;
}

OpDef op_of(std::string_view index, std::string_view inputs, int linear = 0) {
  OpDef op{.name = "made_up", .doc = "For this test."};
  op.inputs = inputs;
  op.rule.index = index;
  op.rule.linear = linear;
  return op;
}

std::string inferred(const OpDef& op, std::initializer_list<std::string_view> shapes) {
  std::string text;
  auto in = types(shapes);
  for (auto& out : infer_types(op, in, {})) text += (text.empty() ? "" : " ") + text_of(out.shape);
  return text;
}

std::string refusal(const OpDef& op, const std::vector<LogicalType>& in) {
  try {
    infer_types(op, in, {});
  } catch (const Error& error) {
    return error.message();
  }
  return "accepted";
}

std::string signatures(const OpDef& op, const std::vector<LogicalType>& in) {
  std::string text;
  for (auto& signature : signatures_of(op, in, {})) {
    if (!text.empty()) text += "; ";
    for (auto& sbp : signature.in) text += text_of(sbp) + " ";
    text += "->";
    for (auto& sbp : signature.out) text += " " + text_of(sbp);
  }
  return text;
}

TEST(IndexRule, InfersShapes) {
  EXPECT_EQ(inferred(op_of("mk,kn->mn", "a,b"), {"[3,4]", "[4,5]"}), "[3,5]");
  EXPECT_EQ(inferred(op_of("*mk,*kn->*mn", "a,b"), {"[8b,2,3,4]", "[2,4,5]"}), "[8b,2,3,5]");
  EXPECT_EQ(inferred(op_of("*,*->*", "x,y"), {"[8b,1,3]", "[5,1]"}), "[8b,5,3]");
  EXPECT_EQ(inferred(op_of("*,*->*", "x,y"), {"[]", "[0,3]"}), "[0,3]");
  EXPECT_EQ(inferred(op_of("*,*->*", "x,y"), {"[1]", "[1b]"}), "[1b]");
  EXPECT_EQ(inferred(op_of("*mn->*nm", "x"), {"[16b*2,3]"}), "[3,16b*2]");
  EXPECT_EQ(inferred(op_of("*k->*,*k", "x"), {"[4,6]"}), "[4] [4,6]");
  EXPECT_EQ(inferred(op_of("*,*->*", "tensors..."), {"[4,6]", "[6]", "[4,1]"}), "[4,6]");
}

TEST(IndexRule, RefusesWithOpShapesAndReason) {
  auto matmul = op_of("mk,kn->mn", "a,b");
  EXPECT_EQ(refusal(matmul, types({"[3,4]", "[5,6]"})),
            "made_up(float32[3,4], float32[5,6]): dim 0 of input 1 ('k' of the rule) is [5], but another input has [4] "
            "there");
  EXPECT_EQ(refusal(matmul, types({"[3,4,1]", "[5,6]"})),
            "made_up(float32[3,4,1], float32[5,6]): input 0 has 3 dims, not 2");
  EXPECT_EQ(refusal(matmul, types({"[3,4]"})), "made_up(float32[3,4]): 1 inputs, not 2 (a,b)");
  EXPECT_EQ(refusal(op_of("*k->*", "x"), types({"[]"})), "made_up(float32[]): input 0 has 0 dims, not at least 1");
  EXPECT_EQ(refusal(op_of("*,*->*", "x,y"), types({"[3,4]", "[3]"})),
            "made_up(float32[3,4], float32[3]): dim 0 of input 1 is [3], but another input has [4] there");
  EXPECT_EQ(refusal(op_of("*,*->*", "x,y"), {type("[2]"), type("[2]", DType::float64)}),
            "made_up(float32[2], float64[2]): the dtypes differ");
}

// The batch does not match a fixed dim of the same size by chance: with the last, smaller batch they would differ.
TEST(IndexRule, BoundedDimsMustAgree) {
  auto add = op_of("*,*->*", "x,y");
  EXPECT_EQ(refusal(add, types({"[8b]", "[8]"})),
            "made_up(float32[8b], float32[8]): dim 0 of input 1 is [8], but another input has [8b] there");
  EXPECT_NE(refusal(add, types({"[8b]", "[8b*2]"})), "accepted");
  EXPECT_NE(refusal(add, types({"[8b]", "[16b*2]"})), "accepted");
  EXPECT_EQ(refusal(add, types({"[8b*2]", "[8b*2]"})), "accepted");
  EXPECT_EQ(refusal(add, types({"[8b]", "[1]"})), "accepted");
}

TEST(IndexRule, SignaturesOfEachKind) {
  EXPECT_EQ(signatures(op_of("mk,kn->mn", "a,b", 2), types({"[3,4]", "[4,5]"})),
            "S(0) B -> S(0); S(1) S(0) -> P; B S(1) -> S(1); P B -> P; B P -> P; B B -> B");
  EXPECT_EQ(signatures(op_of("*,*->*", "x,y", 1), types({"[3,4]", "[4]"})),
            "S(0) B -> S(0); S(1) S(0) -> S(1); P P -> P; B B -> B");
  EXPECT_EQ(signatures(op_of("*!k->*!k", "x"), types({"[3,4]"})), "S(0) -> S(0); B -> B");
  EXPECT_EQ(signatures(op_of("*k->*", "x"), types({"[3,4]"})), "S(0) -> S(0); S(1) -> P; B -> B");
}

TEST(IndexRule, ABroadcastDimIsWhole) {
  EXPECT_EQ(signatures(op_of("*,*->*", "x,y"), types({"[3,1]", "[1,4]"})), "S(0) B -> S(0); B S(1) -> S(1); B B -> B");
  EXPECT_EQ(signatures(op_of("*mk,*kn->*mn", "a,b"), types({"[1,2,3]", "[5,3,4]"})),
            "B S(0) -> S(0); S(1) B -> S(1); S(2) S(1) -> P; B S(2) -> S(2); B B -> B");
}

TEST(IndexRule, PartialMaskAndBools) {
  auto divide = op_of("*,*->*", "x,y", 2);
  divide.rule.partial_mask = 1;
  EXPECT_EQ(signatures(divide, types({"[]", "[]"})), "P B -> P; B B -> B");
  std::vector<LogicalType> bools{type("[2]", DType::bool_)};
  EXPECT_EQ(signatures(op_of("*->*", "x", 1), bools), "S(0) -> S(0); B -> B") << "truth values have no sum";
}

TEST(Promotion, FollowsTheArrayStandard) {
  EXPECT_EQ(promote(DType::float32, DType::float64), DType::float64);
  EXPECT_EQ(promote(DType::bfloat16, DType::float16), DType::float32);
  EXPECT_EQ(promote(DType::int8, DType::int32), DType::int32);
  EXPECT_EQ(promote(DType::uint8, DType::int8), DType::int16);
  EXPECT_EQ(promote(DType::int64, DType::uint8), DType::int64);
  EXPECT_EQ(promote(DType::bool_, DType::bool_), DType::bool_);
  EXPECT_EQ(promote(DType::int32, DType::float32), std::nullopt);
  EXPECT_EQ(promote(DType::bool_, DType::int8), std::nullopt);
  for (int a = 0; a < int(dtype_names.size()); ++a)
    for (int b = 0; b < int(dtype_names.size()); ++b)
      EXPECT_EQ(promote(DType(a), DType(b)), promote(DType(b), DType(a)));
}

TEST(Nearest, FindsATypoAndNothingFar) {
  std::vector<std::string_view> names{"matmul", "matrix_transpose", "mean"};
  EXPECT_EQ(nearest("matmull", names), "matmul");
  EXPECT_EQ(nearest("maen", names), "mean");
  EXPECT_EQ(nearest("zzzzzzzzzz", names), "");
  EXPECT_EQ(nearest(std::string(100'000, 'm'), names), "");
}

}  // namespace
}  // namespace sluice
