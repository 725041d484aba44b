// SPDX-License-Identifier: Apache-2.0
// The test that every op passes: documented; every sample runs; sharded by every legal signature and recombined it
// equals the unsharded run; its gradient agrees with finite differences; wrong operands are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/host_tensor.h"

namespace sluice {
namespace {

using test::HostTensor;
using test::Operand;
using test::OpRun;

class EveryOp : public testing::TestWithParam<const OpDef*> {};

// A sample with its dtypes, window and data chosen.
struct Case {
  OpRun run;
  std::vector<Operand> operands;
  std::vector<HostTensor> in;
  std::string text;
};

bool has_word_float(const Sample& sample) {
  for (auto& word : test::words(sample.in))
    if (word.substr(0, word.find('[')) == "float") return true;
  return false;
}

// The bound of the batch in a case; 0: it has none.
int64_t batch_bound(const std::vector<LogicalType>& in, const std::vector<LogicalType>& out, const Attrs& attrs) {
  std::vector<Shape> shapes;
  for (auto& types : {in, out})
    for (auto& type : types) shapes.push_back(type.shape);
  for (auto& attr : attrs)
    if (auto* shape = std::get_if<Shape>(&attr.value)) shapes.push_back(*shape);
  for (auto& shape : shapes)
    for (auto& dim : shape)
      if (dim.sym == batch_sym) return dim.size / dim.granule;
  return 0;
}

// The whole batch; a smaller last batch; a micro-batch in the middle, smaller than some meshes.
std::vector<Window> windows_of(int64_t bound) {
  auto window = [](int64_t begin, int64_t size, int64_t whole) {
    Window w;
    w.valid[batch_sym] = {begin, size};
    w.whole[batch_sym] = whole;
    return w;
  };
  if (bound == 0) return {window(0, 0, 0)};
  return {window(0, bound, bound), window(0, bound - 1, bound - 1), window(bound / 2, bound / 2, bound)};
}

std::vector<Case> cases_of(const OpDef& op, std::vector<DType> reals = {DType::float32, DType::float64}) {
  std::vector<Case> cases;
  std::mt19937 random(11);
  for (auto& sample : op.samples)
    for (DType real : reals) {
      if (real == DType::float32 && !has_word_float(sample) && reals.size() > 1) continue;  // once is enough
      Case c;
      c.operands = test::operands_of(sample, real);
      c.run.op = &op;
      c.run.attrs = test::attrs_of(op, sample);
      c.run.in_types = test::types_of(c.operands);
      c.run.out_types = infer_types(op, c.run.in_types, c.run.attrs);
      for (auto& window : windows_of(batch_bound(c.run.in_types, c.run.out_types, c.run.attrs))) {
        c.run.window = window;
        c.in.clear();
        for (auto& operand : c.operands) c.in.push_back(test::random_tensor(operand, window, random));
        c.text = std::string(op.name) + " of " + std::string(sample.in) + " " + std::string(sample.attrs) + " in " +
                 std::string(name_of(real)) + ", batch " + std::to_string(window.valid[batch_sym].begin) + "+" +
                 std::to_string(window.valid[batch_sym].size) + " of " + std::to_string(window.whole[batch_sym]);
        cases.push_back(c);
      }
    }
  return cases;
}

bool near(double a, double b, DType dtype) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  double tolerance = dtype == DType::float64 ? 1e-9 : dtype == DType::float32 ? 1e-4 : 0;
  return std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b));
}

testing::AssertionResult same(const HostTensor& have, const HostTensor& want, DType loosest) {
  if (have.dims != want.dims) return testing::AssertionFailure() << "dims " << have.numel() << " of " << want.numel();
  for (int64_t i = 0; i < want.numel(); ++i)
    if (!near(have.get(i), want.get(i), is_float(want.dtype) ? loosest : want.dtype))
      return testing::AssertionFailure() << "element " << i << " is " << have.get(i) << ", not " << want.get(i);
  return testing::AssertionSuccess();
}

// float32 when any operand is.
DType loosest(const Case& c) {
  for (auto& types : {c.run.in_types, c.run.out_types})
    for (auto& type : types)
      if (type.dtype == DType::float32) return DType::float32;
  return DType::float64;
}

// ---- split and recombine ------------------------------------------------------------------------------------------

// What each of n ranks holds of a partial value: parts of both signs, different for each element.
std::vector<HostTensor> parts_of(const HostTensor& value, Sbp::Kind kind, int n, std::mt19937& random) {
  std::vector<HostTensor> parts(size_t(n), value);
  for (int64_t i = 0; i < value.numel(); ++i) {
    double rest = value.get(i);
    auto owner = size_t(random() % size_t(n));
    for (size_t r = 0; r < size_t(n); ++r) {
      double part = 0;
      if (kind != Sbp::P) {  // the owner has the value, the others a worse one
        double worse = value.dtype == DType::uint8 ? 0 : double(random() % 3);
        part = value.get(i) + (r == owner ? 0 : kind == Sbp::Pmax ? -worse : worse);
      } else if (r + 1 == size_t(n)) {
        part = rest;
      } else if (is_float(value.dtype)) {
        part = rest * (r % 2 == 0 ? 1.6 : -0.4);
      } else {
        part = std::trunc(rest * 0.6);
      }
      parts[r].set(i, part);
      rest -= parts[r].get(i);
    }
  }
  return parts;
}

// The local tensors of all ranks, row-major.
std::vector<HostTensor> distribute(const HostTensor& value, const LogicalType& type, const NdSbp& sbp, const Mesh& mesh,
                                   const Window& window, std::mt19937& random) {
  std::vector<HostTensor> held{value};
  for (size_t a = 0; a < sbp.size(); ++a) {
    std::vector<HostTensor> next;
    for (auto& tensor : held) {
      auto parts = sbp[a].is_partial() ? parts_of(tensor, sbp[a].kind, mesh.axes[a].size, random)
                                       : std::vector<HostTensor>(size_t(mesh.axes[a].size), tensor);
      next.insert(next.end(), parts.begin(), parts.end());
    }
    held = std::move(next);
  }
  for (int r = 0; r < mesh.size(); ++r)
    held[size_t(r)] = slice(held[size_t(r)], local_box(type.shape, sbp, mesh, mesh.coords(r), window));
  return held;
}

// A rank's part of the result, spread over the whole window; NaN-free: `present` says what it has.
struct Spread {
  std::vector<double> value;
  std::vector<bool> present;
};

testing::AssertionResult merge(Spread& into, const Spread& from, Sbp sbp, DType dtype) {
  for (size_t i = 0; i < into.value.size(); ++i) {
    if (!from.present[i]) continue;
    double &a = into.value[i], b = from.value[i];
    if (!into.present[i]) {
      a = b;
      into.present[i] = true;
    } else if (sbp.kind == Sbp::P) {
      a += b;
    } else if (sbp.kind == Sbp::Pmax) {
      a = std::max(a, b);
    } else if (sbp.kind == Sbp::Pmin) {
      a = std::min(a, b);
    } else if (sbp.is_split()) {
      return testing::AssertionFailure() << "element " << i << " is on two ranks";
    } else if (!near(a, b, dtype)) {
      return testing::AssertionFailure() << "element " << i << " differs between ranks: " << a << ", " << b;
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult recombine(std::vector<Spread> parts, const NdSbp& sbp, const Mesh& mesh, DType dtype,
                                   HostTensor& out) {
  for (size_t a = sbp.size(); a-- > 0;) {
    std::vector<Spread> next;
    auto n = size_t(mesh.axes[a].size);
    for (size_t first = 0; first < parts.size(); first += n) {
      for (size_t i = 1; i < n; ++i)
        if (auto ok = merge(parts[first], parts[first + i], sbp[a], dtype); !ok) return ok;
      next.push_back(parts[first]);
    }
    parts = std::move(next);
  }
  for (int64_t i = 0; i < out.numel(); ++i) {
    if (!parts[0].present[size_t(i)]) return testing::AssertionFailure() << "no rank has element " << i;
    out.set(i, parts[0].value[size_t(i)]);
  }
  return testing::AssertionSuccess();
}

std::string text_of(const std::vector<NdSbp>& in, const std::vector<NdSbp>& out) {
  std::string text;
  for (auto& sbp : in) text += sluice::text_of(sbp) + " ";
  text += "->";
  for (auto& sbp : out) text += " " + sluice::text_of(sbp);
  return text;
}

// Runs a case on all ranks of a mesh and compares with the unsharded outputs.
void check_sharded(const Case& c, const std::vector<HostTensor>& want, const Mesh& mesh, const std::vector<NdSbp>& in,
                   const std::vector<NdSbp>& out, std::mt19937& random) {
  SCOPED_TRACE(c.text + " by " + text_of(in, out) + " on " + std::to_string(mesh.size()) + " ranks");
  std::vector<std::vector<HostTensor>> local;
  for (size_t i = 0; i < c.in.size(); ++i)
    local.push_back(distribute(c.in[i], c.run.in_types[i], in[i], mesh, c.run.window, random));
  std::vector<std::vector<Spread>> spread(want.size());
  for (int r = 0; r < mesh.size(); ++r) {
    std::vector<HostTensor> mine;
    std::vector<Box> in_boxes, out_boxes;
    for (size_t i = 0; i < c.in.size(); ++i) {
      mine.push_back(local[i][size_t(r)]);
      in_boxes.push_back(local_box(c.run.in_types[i].shape, in[i], mesh, mesh.coords(r), c.run.window));
    }
    for (size_t o = 0; o < want.size(); ++o)
      out_boxes.push_back(local_box(c.run.out_types[o].shape, out[o], mesh, mesh.coords(r), c.run.window));
    auto result = c.run.run(mine, in_boxes, out_boxes);
    for (size_t o = 0; o < want.size(); ++o) {
      Spread s{std::vector<double>(size_t(want[o].numel()), 0.0), std::vector<bool>(size_t(want[o].numel()), false)};
      test::for_box(want[o].dims, out_boxes[o], [&](int64_t at, int64_t i) {
        s.value[size_t(at)] = result[o].get(i);
        s.present[size_t(at)] = true;
      });
      spread[o].push_back(std::move(s));
    }
  }
  for (size_t o = 0; o < want.size(); ++o) {
    HostTensor have = want[o];
    ASSERT_TRUE(recombine(spread[o], out[o], mesh, loosest(c), have)) << "output " << o;
    ASSERT_TRUE(same(have, want[o], loosest(c))) << "output " << o;
  }
}

Mesh mesh_of(std::vector<int> sizes) {
  Mesh mesh{"test", {}, 0};
  for (int n : sizes) mesh.axes.push_back({"a" + std::to_string(mesh.axes.size()), n});
  return mesh;
}

// One NdSbp per operand from a signature per axis.
std::vector<NdSbp> transposed(const std::vector<const std::vector<Sbp>*>& by_axis) {
  std::vector<NdSbp> by_operand(by_axis[0]->size());
  for (auto* axis : by_axis)
    for (size_t i = 0; i < axis->size(); ++i) by_operand[i].push_back((*axis)[i]);
  return by_operand;
}

// ---- the tests ----------------------------------------------------------------------------------------------------

TEST_P(EveryOp, IsDocumented) {
  const OpDef& op = *GetParam();
  EXPECT_FALSE(op.name.empty());
  ASSERT_FALSE(op.doc.empty());
  EXPECT_EQ(op.doc.back(), '.') << op.doc;
  EXPECT_FALSE(op.samples.empty());
  for (auto& attr : op.attrs) {
    EXPECT_FALSE(attr.name.empty());
    ASSERT_FALSE(attr.doc.empty()) << attr.name;
    EXPECT_EQ(attr.doc.back(), '.') << attr.doc;
  }
  bool variadic = op.inputs.find("...") != op.inputs.npos;
  auto count = op.inputs.empty() ? 0 : std::count(op.inputs.begin(), op.inputs.end(), ',') + 1;
  for (auto& sample : op.samples) EXPECT_TRUE(variadic || size_t(count) == test::words(sample.in).size()) << sample.in;
  for (auto& state : op.states) EXPECT_FALSE(state.name.empty());
}

TEST_P(EveryOp, RunsEverySampleTheSameTwiceInPlaceAndInBothLayouts) {
  for (auto& c : cases_of(*GetParam())) {
    SCOPED_TRACE(c.text);
    auto want = c.run.run_whole(c.in);
    ASSERT_EQ(want.size(), c.run.out_types.size());
    Cost cost = cost_of(*c.run.op, c.run.in_types, c.run.out_types, c.run.attrs);
    EXPECT_GE(cost.flops, 0);
    EXPECT_GE(cost.bytes, 0);
    for (int threads : {1, 2}) {
      OpRun again = c.run;
      again.threads = threads;
      auto have = again.run_whole(c.in);
      for (size_t o = 0; o < want.size(); ++o) EXPECT_TRUE(same(have[o], want[o], loosest(c))) << "output " << o;
    }
    for (size_t i = 0; i < c.in.size(); ++i) {
      OpRun in_place = c.run, col = c.run;
      bool fits =
          bytes_of(c.run.in_types[i].dtype) * c.in[i].numel() == bytes_of(c.run.out_types[0].dtype) * want[0].numel();
      in_place.alias_input = (c.run.op->alias >> i & 1) && fits ? int(i) : -1;
      col.col_inputs = (c.run.op->col_mask >> i & 1) && c.in[i].dims.size() >= 2 ? 1u << i : 0;
      for (auto& variant : {in_place, col}) {
        auto have = variant.run_whole(c.in);
        for (size_t o = 0; o < want.size(); ++o) EXPECT_TRUE(same(have[o], want[o], loosest(c))) << "input " << i;
      }
    }
  }
}

TEST_P(EveryOp, ShardedByEverySignatureEqualsUnsharded) {
  std::mt19937 random(5);
  for (auto& c : cases_of(*GetParam())) {
    auto want = c.run.run_whole(c.in);
    auto list = signatures_of(*c.run.op, c.run.in_types, c.run.attrs);
    ASSERT_FALSE(list.empty());
    for (auto& sbp : list.back().in) EXPECT_EQ(sbp, Sbp::broadcast());
    for (auto& s : list)
      for (int n : {2, 3, 7}) {
        check_sharded(c, want, mesh_of({n}), transposed({&s.in}), transposed({&s.out}), random);
        if (HasFatalFailure()) return;
      }
    for (int trial = 0; trial < 6; ++trial) {
      auto &s = list[random() % list.size()], &t = list[random() % list.size()];
      check_sharded(c, want, mesh_of({2, 3}), transposed({&s.in, &t.in}), transposed({&s.out, &t.out}), random);
      if (HasFatalFailure()) return;
    }
  }
}

// ---- gradients ----------------------------------------------------------------------------------------------------

// Every tensor of a graph by running its nodes in order.
std::map<TensorId, HostTensor> evaluate(const Graph& graph, const OpTable& table, const Window& window,
                                        std::map<TensorId, HostTensor> values) {
  for (auto& node : graph.nodes) {
    OpRun run{&table.at(node.op), node.attrs, {}, {}, window};
    run.key = name_hash(node.name);
    std::vector<HostTensor> in;
    for (TensorId t : node.inputs) {
      run.in_types.push_back(graph.type(t));
      in.push_back(values.at(t));
    }
    for (TensorId t : node.outputs) run.out_types.push_back(graph.type(t));
    auto out = run.run_whole(in);
    for (size_t o = 0; o < out.size(); ++o) values[node.outputs[o]] = std::move(out[o]);
  }
  return values;
}

// A graph whose loss weighs every real output of the op, with the data of its inputs.
struct GradientCase {
  Graph graph;
  std::map<TensorId, HostTensor> fed;
  std::vector<TensorId> inputs, wrt, gradients;
  TensorId loss = no_tensor;
  size_t forward_nodes = 0;
};

GradientCase gradient_case(const Case& c, const OpTable& table) {
  GradientCase g;
  Builder build(g.graph, table);
  std::mt19937 random(3);
  for (size_t i = 0; i < c.in.size(); ++i) {
    g.inputs.push_back(build.input("in" + std::to_string(i), c.run.in_types[i]));
    g.fed[g.inputs.back()] = c.in[i];
    if (c.run.in_types[i].dtype == DType::float64) g.wrt.push_back(g.inputs.back());
  }
  for (TensorId out : build.ops(c.run.op->name, g.inputs, c.run.attrs)) {
    LogicalType type = build.type(out);
    if (type.dtype != DType::float64) continue;
    TensorId weight = build.input("weight" + std::to_string(out), type);
    g.fed[weight] = test::random_tensor({type}, c.run.window, random);
    TensorId part = build.op("sum", {build.op("multiply", {out, weight})});
    g.loss = g.loss == no_tensor ? part : build.op("add", {g.loss, part});
  }
  g.forward_nodes = g.graph.nodes.size();
  if (g.loss != no_tensor) g.gradients = append_gradients(build, g.loss, g.wrt);
  return g;
}

void check_gradient(const GradientCase& g, const OpTable& table, const Window& window) {
  if (g.loss == no_tensor) return;  // no float64 comes out
  auto values = evaluate(g.graph, table, window, g.fed);
  Graph forward = g.graph;
  forward.nodes.resize(g.forward_nodes);
  for (size_t w = 0; w < g.wrt.size(); ++w) {
    if (g.gradients[w] == no_tensor) continue;  // e.g. the op has no gradient in this input
    ASSERT_EQ(g.graph.type(g.gradients[w]), g.graph.type(g.wrt[w]));
    const HostTensor& gradient = values.at(g.gradients[w]);
    for (int64_t e = 0; e < gradient.numel(); ++e) {
      constexpr double h = 1e-5;
      auto loss_at = [&](double step) {
        auto fed = g.fed;
        fed[g.wrt[w]].set(e, fed[g.wrt[w]].get(e) + step);
        return evaluate(forward, table, window, fed).at(g.loss).get(0);
      };
      double want = (loss_at(h) - loss_at(-h)) / (2 * h), have = gradient.get(e);
      ASSERT_NEAR(have, want, 1e-6 * std::max(1.0, std::abs(want))) << "input " << w << ", element " << e;
    }
  }
}

TEST_P(EveryOp, GradientAgreesWithFiniteDifferences) {
  const OpDef& op = *GetParam();
  if (!op.grad) return;  // not differentiable: append_gradients stops there
  OpTable table({builtin_ops().begin(), builtin_ops().end()});
  int checked = 0;
  for (auto& c : cases_of(op, {DType::float64})) {
    SCOPED_TRACE(c.text);
    auto g = gradient_case(c, table);
    for (TensorId t : g.gradients) checked += t != no_tensor;
    check_gradient(g, table, c.run.window);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(checked, 0) << "no sample has a gradient";
}

// ---- refusals -----------------------------------------------------------------------------------------------------

// Accepted operands must run; refused ones must name the op and the operands. Whether it was refused.
bool refused_or_runs(const OpDef& op, const std::vector<Operand>& operands, const Attrs& attrs) {
  auto types = test::types_of(operands);
  std::string all;
  for (auto& type : types) all += (all.empty() ? "" : ", ") + sluice::text_of(type);
  SCOPED_TRACE(std::string(op.name) + "(" + all + ")");
  OpRun run{&op, attrs, types, {}, {}};
  try {
    run.out_types = infer_types(op, types, attrs);
    signatures_of(op, types, attrs);
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), testing::HasSubstr(std::string(op.name)));
    EXPECT_THAT(error.message(), testing::HasSubstr(all));
    EXPECT_TRUE(error.code() == Code::value || error.code() == Code::type);
    return true;
  }
  int64_t bound = batch_bound(types, run.out_types, attrs);
  run.window = windows_of(bound)[0];
  std::mt19937 random(1);
  std::vector<HostTensor> in;
  for (auto& operand : operands) in.push_back(test::random_tensor(operand, run.window, random));
  try {
    run.run_whole(in);
  } catch (const Error& error) {  // such as a label outside of the classes; a gradient may name its forward op
    EXPECT_TRUE(op.name.starts_with(error.message().substr(0, error.message().find(':')))) << error.message();
  }
  return false;
}

TEST_P(EveryOp, RefusesWrongOperandsAndSurvivesOddOnes) {
  const OpDef& op = *GetParam();
  for (auto& sample : op.samples) {
    Attrs attrs = test::attrs_of(op, sample);
    auto operands = test::operands_of(sample, DType::float32);
    EXPECT_FALSE(refused_or_runs(op, operands, attrs));
    auto more = operands, fewer = operands;
    more.push_back({{DType::float32, {}}});
    bool variadic = op.inputs.find("...") != op.inputs.npos;
    EXPECT_TRUE(variadic || refused_or_runs(op, more, attrs));
    if (fewer.empty()) continue;
    fewer.pop_back();
    EXPECT_TRUE(refused_or_runs(op, fewer, attrs));
    for (size_t i = 0; i < operands.size(); ++i) {
      auto wrong = operands;
      wrong[i].type.shape = Shape(size_t(rank_max) + 1, Dim{1});
      EXPECT_TRUE(refused_or_runs(op, wrong, attrs)) << "nine dims";
      wrong = operands;
      wrong[i].type.shape = {{int64_t(1) << 40}, {int64_t(1) << 40}};
      EXPECT_TRUE(refused_or_runs(op, wrong, attrs)) << "too many elements";
      for (DType dtype : {DType::float16, DType::bool_, DType::int8, DType::float64}) {
        wrong = operands;
        wrong[i].type.dtype = dtype;
        refused_or_runs(op, wrong, attrs);
      }
      wrong = operands;
      wrong[i].type.shape.insert(wrong[i].type.shape.begin(), Dim{3});
      refused_or_runs(op, wrong, attrs);
      for (size_t d = 0; d < operands[i].type.shape.size(); ++d) {
        for (int64_t size : {int64_t(0), int64_t(1), operands[i].type.shape[d].size + 1}) {
          wrong = operands;
          wrong[i].type.shape[d] = {size};
          refused_or_runs(op, wrong, attrs);
        }
        wrong = operands;
        wrong[i].type.shape.erase(wrong[i].type.shape.begin() + int64_t(d));
        refused_or_runs(op, wrong, attrs);
      }
    }
    // Every dim 0: nothing to compute, nothing to crash on.
    for (auto& operand : operands)
      for (auto& dim : operand.type.shape) dim = {0};
    refused_or_runs(op, operands, attrs);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryOp, testing::ValuesIn(builtin_ops().begin(), builtin_ops().end()),
                         [](auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace sluice
