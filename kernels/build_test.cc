// SPDX-License-Identifier: Apache-2.0
// The builder, the op table and attributes.
#include "kernels/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

using testing::HasSubstr;

struct BuildTest : testing::Test {
  OpTable table{{builtin_ops().begin(), builtin_ops().end()}};
  Graph graph;
  Builder build{graph, table};

  TensorId input(std::string name, std::string_view shape, DType dtype = DType::float32) {
    return build.input(std::move(name), {dtype, std::get<Shape>(parse_attr("shape" + std::string(shape)))});
  }
  const std::string& name(TensorId t) { return graph.tensor(t).name; }
  std::string op_of(TensorId t) {
    NodeId producer = graph.tensor(t).producer;
    return producer < 0 ? "" : graph.nodes[size_t(producer)].op;
  }
  std::string text(TensorId t) { return text_of(build.type(t)); }
  template <class F>
  Error error_of(F f) {
    try {
      f();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was refused";
    return Error(Code::failed, "");
  }
};

TEST_F(BuildTest, NamesCountPerBaseName) {
  TensorId x = input("x", "[4b,3]");
  EXPECT_EQ(name(build.op("exp", {x})), "exp_0");
  EXPECT_EQ(name(build.op("exp", {x})), "exp_1");
  EXPECT_EQ(name(build.op("log", {x})), "log_0");
  build.scope = "layers.0";
  EXPECT_EQ(name(build.op("exp", {x})), "layers.0.exp_0");
  Builder other(graph, table);
  EXPECT_EQ(name(other.op("exp", {x})), "exp_2");
  build.scope = "";
  EXPECT_EQ(name(build.op("exp", {x})), "exp_3");
}

TEST_F(BuildTest, NamesStayUniqueWhenNodesGoAndWhenUsersTakeThem) {
  TensorId x = input("x", "[3]");
  for (int i = 0; i < 3; ++i) build.op("exp", {x});
  graph.nodes.erase(graph.nodes.begin());
  EXPECT_EQ(name(build.op("exp", {x})), "exp_3");
  input("log_0", "[3]");
  EXPECT_EQ(name(build.op("log", {x})), "log_1");
  EXPECT_THAT(error_of([&] { input("exp_1", "[3]"); }).message(), HasSubstr("'exp_1' is the name of a node"));
  EXPECT_THAT(error_of([&] { input("x", "[3]"); }).message(), HasSubstr("'x' is the name of an input"));
}

TEST_F(BuildTest, NodesCarryWhereTheyComeFrom) {
  build.place = {"net.py", 12};
  build.phase = Phase::backward;
  build.origin = 5;
  TensorId x = input("x", "[3]");
  auto& node = graph.nodes[size_t(graph.tensor(build.op("exp", {x})).producer)];
  EXPECT_EQ(node.place, (Place{"net.py", 12}));
  EXPECT_EQ(node.phase, Phase::backward);
  EXPECT_EQ(node.origin, 5);
}

TEST_F(BuildTest, ErrorsCarryTheUsersPlace) {
  build.place = {"net.py", 12};
  TensorId x = input("x", "[3,4]"), y = input("y", "[5,6]");
  size_t nodes = graph.nodes.size();
  Error shapes = error_of([&] { build.op("add", {x, y}); });
  EXPECT_EQ(shapes.place(), (Place{"net.py", 12}));
  EXPECT_THAT(shapes.message(), HasSubstr("add(float32[3,4], float32[5,6])"));
  Error unknown = error_of([&] { build.op("ad", {x, y}); });
  EXPECT_EQ(unknown.code(), Code::not_found);
  EXPECT_THAT(unknown.next(), HasSubstr("did you mean 'add'?"));
  EXPECT_THAT(error_of([&] { build.op("add", {x, 99}); }).message(), HasSubstr("no tensor of this graph"));
  EXPECT_EQ(graph.nodes.size(), nodes) << "a refused op leaves nothing behind";
}

TEST_F(BuildTest, PromotesWhatTheStandardDefines) {
  TensorId x = input("x", "[3]"), y = input("y", "[3]", DType::float64);
  TensorId sum = build.op("add", {x, y});
  EXPECT_EQ(text(sum), "float64[3]");
  EXPECT_EQ(op_of(graph.nodes.back().inputs[0]), "astype");
  EXPECT_EQ(graph.nodes.back().inputs[1], y);
  TensorId i = input("i", "[3]", DType::int32);
  Error mixed = error_of([&] { build.op("add", {x, i}); });
  EXPECT_EQ(mixed.code(), Code::type);
  EXPECT_THAT(mixed.message(), HasSubstr("float32 and int32 have no common dtype"));
  TensorId condition = build.op("less", {x, x});
  EXPECT_EQ(text(build.op("where", {condition, x, y})), "float64[3]") << "the condition is not promoted";
}

TEST_F(BuildTest, AttributesAreCompletedAndChecked) {
  TensorId x = input("x", "[3,4]");
  auto& attrs = graph.nodes[size_t(graph.tensor(build.op("sum", {x})).producer)].attrs;
  EXPECT_EQ(attrs, (Attrs{{"axis", std::vector<int64_t>{}}, {"keepdims", false}}));
  EXPECT_THAT(error_of([&] { build.op("sum", {x}, {{"axes", int64_t(0)}}); }).next(), HasSubstr("'axis'"));
  EXPECT_THAT(error_of([&] { build.op("sum", {x}, {{"axis", 0.5}}); }).message(), HasSubstr("not a list of integers"));
  EXPECT_THAT(error_of([&] { build.op("permute_dims", {x}); }).message(), HasSubstr("'axes' is missing"));
  Attrs twice{{"keepdims", true}, {"keepdims", true}};
  EXPECT_THAT(error_of([&] { build.op("sum", {x}, twice); }).message(), HasSubstr("given twice"));
  EXPECT_EQ(text(build.op("full", {}, {{"shape", std::vector<int64_t>{2, 3}}, {"fill_value", int64_t(1)}})),
            "float32[2,3]");
}

TEST_F(BuildTest, ReshapeKeepsTheBatchAndClosesOpenDims) {
  TensorId x = input("x", "[8b,4,6]");
  auto shaped = [&](std::vector<int64_t> shape) { return build.op("reshape", {x}, {{"shape", shape}}); };
  TensorId flat = shaped({-1, 24});
  EXPECT_EQ(text(flat), "float32[8b,24]");
  EXPECT_EQ(attr<Shape>(graph.nodes.back().attrs, "shape"), build.type(flat).shape) << "no -1 stays in a graph";
  EXPECT_EQ(text(shaped({8, -1})), "float32[8b,24]");
  EXPECT_EQ(text(shaped({-1, 6})), "float32[32b*4,6]");
  EXPECT_EQ(text(shaped({192})), "float32[192b*24]");
  EXPECT_EQ(text(shaped({1, 8, 2, 12})), "float32[1,8b,2,12]");
  EXPECT_THAT(error_of([&] { shaped({5, -1}); }).message(), HasSubstr("192 elements do not fill"));
  EXPECT_THAT(error_of([&] { shaped({-1, -1}); }).message(), HasSubstr("only one dim may be -1"));
  EXPECT_THAT(error_of([&] { shaped({4, 48}); }).message(), HasSubstr("the batch dim does not lead"));
  EXPECT_THAT(error_of([&] { shaped({8, 25}); }).message(), HasSubstr("192 elements do not fit [8,25], which has 200"));
}

TEST_F(BuildTest, UnbroadcastSumsWhatBroadcastingAdded) {
  TensorId grad = input("g", "[8b,5,3]"), row = input("r", "[3]"), column = input("c", "[5,1]");
  EXPECT_EQ(build.unbroadcast(grad, grad), grad);
  EXPECT_EQ(text(build.unbroadcast(grad, row)), "float32[3]");
  EXPECT_EQ(text(build.unbroadcast(grad, column)), "float32[5,1]");
}

TEST_F(BuildTest, TheGradientOfATransposedProductCopiesNothing) {
  TensorId x = input("x", "[8b,4]"), w = build.variable("w", {DType::float32, fixed_shape({3, 4})}, true);
  TensorId y = build.op("matmul", {x, build.op("matrix_transpose", {w})});
  TensorId loss = build.op("sum", {y});
  std::vector<TensorId> wrt{w};
  TensorId dw = append_gradients(build, loss, wrt)[0];
  EXPECT_EQ(text(dw), "float32[3,4]");
  ASSERT_EQ(op_of(dw), "matmul");
  auto& product = graph.nodes[size_t(graph.tensor(dw).producer)];
  EXPECT_EQ(product.inputs[1], x);
  EXPECT_EQ(op_of(product.inputs[0]), "matrix_transpose");
}

TEST_F(BuildTest, TheSameHoldsForAProductOverManyRows) {
  TensorId x = input("x", "[8b,5,4]"), w = build.variable("w", {DType::float32, fixed_shape({3, 4})}, true);
  TensorId y = build.op("matmul", {x, build.op("matrix_transpose", {w})});
  std::vector<TensorId> wrt{w};
  TensorId dw = append_gradients(build, build.op("sum", {y}), wrt)[0];
  EXPECT_EQ(text(dw), "float32[3,4]");
  ASSERT_EQ(op_of(dw), "matmul_over_rows");
  EXPECT_EQ(graph.nodes[size_t(graph.tensor(dw).producer)].inputs[1], x);
}

TEST_F(BuildTest, BoundsOfTheBatchAgree) {
  input("x", "[8b,3]");
  EXPECT_EQ(graph.batch_bound, 8);
  input("y", "[16b*2]");
  EXPECT_THAT(error_of([&] { input("z", "[4b]"); }).message(), HasSubstr("has the batch bound 4, the graph has 8"));
  EXPECT_THAT(error_of([&] {
                build.variable("w", {DType::float32, {{8, batch_sym}}}, true);
              }).message(),
              HasSubstr("bounded"));
}

TEST(OpTable, RefusesTwoOpsOfOneName) {
  OpDef one{.name = "twin"}, other{.name = "twin"};
  EXPECT_THROW(OpTable({&one, &other}), Error);
  OpTable table({&one});
  EXPECT_EQ(table.find("twin"), &one);
  EXPECT_EQ(table.find("twi"), nullptr);
}

}  // namespace
}  // namespace sluice
