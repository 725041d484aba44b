// SPDX-License-Identifier: Apache-2.0
// The floor runs hand-built plans: every way of driving it, on every device, gives the same numbers.
#include "actors/floor.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "actors/testing.h"

namespace sluice {
namespace {

using namespace testing_plans;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

// ---- ops of these tests
// -----------------------------------------------------------------------------------------------

float* out(const Call& call) { return call.out[0].as<float>(); }
const float* in(const Call& call, size_t i) { return call.in[i].as<float>(); }

void add_one(const Call& call) {
  for (int64_t i = 0; i < call.out[0].numel(); ++i) out(call)[i] = in(call, 0)[i] + 1;
}
void add_two(const Call& call) {
  for (int64_t i = 0; i < call.out[0].numel(); ++i) out(call)[i] = in(call, 0)[i] + in(call, 1)[i];
}
// [b,n] -> [n], summed over rows; adds up over micro-batches.
void sum_rows(const Call& call) {
  auto& x = call.in[0];
  int64_t width = x.dims[1];
  if (call.micro_batch == 0) std::fill_n(out(call), width, 0.0f);
  for (int64_t r = 0; r < x.dims[0]; ++r)
    for (int64_t c = 0; c < width; ++c) out(call)[c] += in(call, 0)[r * width + c];
}
// Adds a row to every row.
void add_row(const Call& call) {
  int64_t width = call.out[0].dims[1];
  for (int64_t i = 0; i < call.out[0].numel(); ++i) out(call)[i] = in(call, 0)[i] + in(call, 1)[i % width];
}
// The place of each element in the whole batch's tensor, plus 1000 * step.
void where(const Call& call) {
  auto& v = call.out[0];
  for (int64_t r = 0; r < v.dims[0]; ++r)
    for (int64_t c = 0; c < v.dims[1]; ++c)
      out(call)[r * v.dims[1] + c] = float(1000 * call.step + (v.origin[0] + r) * v.whole[1] + v.origin[1] + c);
}
void fail_at_two(const Call& call) {
  add_one(call);
  if (call.step == 2) throw Error(Code::index, "index 9 is out of range");
}
void no_work(const Call&) {}

constexpr OpDef add_one_op{.name = "add_one", .cpu = add_one};
constexpr OpDef add_two_op{.name = "add_two", .cpu = add_two};
constexpr OpDef sum_rows_op{.name = "sum_rows", .cpu = sum_rows, .rate = Rate::accumulate};
constexpr OpDef add_row_op{.name = "add_row", .cpu = add_row};
constexpr OpDef where_op{.name = "where_am_i", .cpu = where};
constexpr OpDef fail_op{.name = "fail_at_two", .cpu = fail_at_two};
constexpr OpDef no_work_op{.name = "no_work", .cpu = no_work};

const OpTable& ops() {
  static const OpTable table({&add_one_op, &add_two_op, &sum_rows_op, &add_row_op, &where_op, &fail_op, &no_work_op});
  return table;
}

// Ten rows: x[row] = (row, 100 + row), label = row.
class TenRows final : public sluice::Reader {
 public:
  int64_t rows() const override { return 10; }
  const std::vector<Field>& fields() const override { return fields_; }
  void read(int field, std::span<const int64_t> rows, void* to) const override {
    auto* values = static_cast<float*>(to);
    for (int64_t row : rows) {
      *values++ = float(row);
      if (field == 0) *values++ = float(100 + row);
    }
  }

 private:
  std::vector<Field> fields_{{"x", DType::float32, {2}}, {"label", DType::float32, {}}};
};
constexpr ReaderDef ten_rows{.name = "ten_rows", .open = [](const Attrs&) -> std::shared_ptr<const sluice::Reader> {
                               return std::make_shared<TenRows>();
                             }};
const ReaderDef* const readers[] = {&ten_rows};

FloorTables tables() { return {ops(), builtin_moves(), builtin_kinds(), builtin_devices(), readers}; }

// ---- every way of driving
// ---------------------------------------------------------------------------------------------

struct Way {
  const char* name;
  const char* device;
  bool inline_drive;
  int workers;
  bool spin = false;
};

class EveryWay : public testing::TestWithParam<Way> {
 protected:
  std::unique_ptr<Floor> floor(Plan plan) {
    plan.device = GetParam().device;
    FloorOptions options;
    options.inline_drive = GetParam().inline_drive;
    options.workers = GetParam().workers;
    options.spin = GetParam().spin;
    options.delay_seed = 5;
    options.watchdog = milliseconds(20'000);
    return std::make_unique<Floor>(plan, tables(), options);
  }
  static StepResult next(Floor& floor) {
    auto result = floor.wait_step(milliseconds(20'000));
    if (!result) throw std::runtime_error("no step came");
    return *result;
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, EveryWay,
                         testing::Values(Way{"inline_cpu", "cpu", true, 0}, Way{"cpu_1", "cpu", false, 1},
                                         Way{"cpu_3", "cpu", false, 3}, Way{"cpu_2_spin", "cpu", false, 2, true},
                                         Way{"sim_2", "sim", false, 2}),
                         [](auto& info) { return info.param.name; });

std::vector<float> ramp(size_t n, float from = 0) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), from);
  return values;
}

TEST_P(EveryWay, FeedsPassThroughAChainToTheSink) {
  PlanMaker make(4);
  int c = make.cls(1, 2);
  int x = make.reg("x", c, make.batch_type(3), Sbp::broadcast(), 2);
  int y = make.reg("y", c, make.batch_type(3));
  int z = make.reg("z", c, make.batch_type(3), Sbp::broadcast(), 2);
  make.feed("x", c, x, 1);
  make.op("first", "add_one", c, {{x}}, {{y}});
  make.op("second", "add_one", c, {{y}}, {{z}});
  make.sink("z", c, z, 1);
  auto f = floor(make.plan);
  f->grant(20);
  for (int step = 0; step < 20; ++step) {
    int64_t rows = step % 4 + 1;  // smaller batches need no new plan
    f->feed({{"x", array_of({rows, 3}, ramp(size_t(rows * 3), float(step)))}});
  }
  for (int step = 0; step < 20; ++step) {
    StepResult result = next(*f);
    int64_t rows = step % 4 + 1;
    EXPECT_EQ(result.step, step);
    EXPECT_EQ(result.batch, rows);
    EXPECT_EQ(result.outputs["z"].dims, (std::vector<int64_t>{rows, 3}));
    EXPECT_EQ(values_of(result.outputs["z"]), ramp(size_t(rows * 3), float(step + 2)));
  }
  f->drain();
  EXPECT_EQ(f->steps_done(), 20);
  RunStats stats = f->stats();
  EXPECT_EQ(stats.fired["first"], 20);
  EXPECT_LE(stats.alive_max["x"], 2);
  EXPECT_EQ(stats.alive_max["y"], 1);
}

TEST_P(EveryWay, ChainsGiveWhatSingleActorsGive) {
  PlanMaker make(4);
  int c = make.cls(1);
  int x = make.reg("x", c, make.batch_type(2)), z = make.reg("z", c, make.batch_type(2));
  make.feed("x", c, x);
  PlanActor& chain = make.op("chain", "add_one", c, {{x}}, {{z}});
  PlanTensor scratch = make.plan.tensors[size_t(make.tensor(x))];
  scratch.name = "between";
  scratch.reg = -1;
  scratch.offset = 64;
  make.plan.tensors.push_back(scratch);
  int between = int(make.plan.tensors.size()) - 1;
  PlanOp second = chain.ops[0];
  chain.ops[0].out = {between};
  second.name = "second";
  second.in = {between};
  chain.ops.push_back(second);
  make.sink("z", c, z);
  auto f = floor(make.plan);
  f->grant(3);
  for (int step = 0; step < 3; ++step) f->feed({{"x", array_of({4, 2}, ramp(8))}});
  for (int step = 0; step < 3; ++step) EXPECT_EQ(values_of(next(*f).outputs["z"]), ramp(8, 2));
}

TEST_P(EveryWay, MovesJoinRanksAndMeshes) {
  PlanMaker make(5);  // five rows over two ranks: three and two
  int workers = make.cls(2, 2), client = make.cls(1, 1);
  auto split = Sbp::split(0);
  int x = make.reg("x", workers, make.batch_type(2), split, 2), y = make.reg("y", workers, make.batch_type(2), split);
  int all = make.reg("all", workers, make.batch_type(2));
  int back = make.reg("back", workers, make.batch_type(2), Sbp::split(1));
  int z = make.reg("z", client, make.batch_type(2));
  make.feed("x", workers, x, 1);
  make.op("inc", "add_one", workers, {{x}}, {{y}});
  make.move("gather", workers, y, all, 1);
  make.move("slice", workers, all, back, 1);
  make.move("home", client, back, z);
  make.sink("z", client, z);
  auto f = floor(make.plan);
  f->grant(6);
  for (int step = 0; step < 6; ++step) {
    int64_t rows = step % 5 + 1;
    f->feed({{"x", array_of({rows, 2}, ramp(size_t(rows * 2), float(10 * step)))}});
  }
  for (int step = 0; step < 6; ++step) {
    int64_t rows = step % 5 + 1;
    EXPECT_EQ(values_of(next(*f).outputs["z"]), ramp(size_t(rows * 2), float(10 * step + 1)));
  }
  f->drain();
  EXPECT_GT(f->stats().bytes_moved, 0);
  EXPECT_EQ(f->stats().fired["gather"], 12);
}

TEST_P(EveryWay, MicroBatchesAccumulateAndRepeat) {
  PlanMaker make(10, 4);  // pieces of 3, 3, 2 and 2 rows
  int c = make.cls(1, 2);
  int x = make.reg("x", c, make.batch_type(2), Sbp::broadcast(), 3);
  int row = make.reg("row", c, make.fixed_type({2}));
  int y = make.reg("y", c, make.batch_type(2), Sbp::broadcast(), 2);
  int w = make.reg("w", c, make.fixed_type({2}));
  make.feed("x", c, x, 1).firings = 4;
  make.feed("row", c, row);
  make.op("spread", "add_row", c, {{x}, {row, 4}}, {{y}}).firings = 4;  // the row is repeated
  make.op("sum", "sum_rows", c, {{y}}, {{w, 4}}).firings = 4;           // the sum is accumulated
  make.sink("w", c, w, 1);
  make.sink("y", c, y, 1).firings = 4;
  auto f = floor(make.plan);
  f->grant(4);
  for (int step = 0; step < 4; ++step) {
    int64_t rows = step == 3 ? 6 : 10;  // the last batch is smaller
    f->feed({{"x", array_of({rows, 2}, std::vector<float>(size_t(rows * 2), 1))},
             {"row", array_of({2}, {float(step), 10})}});
  }
  for (int step = 0; step < 4; ++step) {
    float rows = step == 3 ? 6 : 10;
    StepResult result = next(*f);
    EXPECT_THAT(values_of(result.outputs["w"]), ElementsAre(rows * float(1 + step), rows * 11));
    EXPECT_EQ(result.outputs["y"].dims, (std::vector<int64_t>{int64_t(rows), 2}));
    for (size_t i = 0; i < size_t(rows); ++i) EXPECT_EQ(values_of(result.outputs["y"])[2 * i], float(1 + step));
  }
}

// The planner's dims hold one micro-batch: memory for four rows serves a batch of ten in three micro-batches.
TEST_P(EveryWay, DimsMayHoldAMicroBatchOnly) {
  PlanMaker make(10, 3);
  int c = make.cls(1);
  LogicalType part{DType::float32, {{4, batch_sym, 1}, {2}}};
  int x = make.reg("x", c, part, Sbp::broadcast(), 2), y = make.reg("y", c, part);
  make.feed("x", c, x).firings = 3;
  make.op("where", "where_am_i", c, {{x}}, {{y}}).firings = 3;
  make.sink("y", c, y).firings = 3;
  auto f = floor(make.plan);
  f->grant(1);
  f->feed({{"x", array_of({10, 2}, ramp(20))}});
  EXPECT_EQ(values_of(next(*f).outputs["y"]), ramp(20));
  EXPECT_THROW(f->feed({{"x", array_of({11, 2}, ramp(22))}}), Error);
}

TEST_P(EveryWay, EveryElementKnowsItsPlaceInTheWholeBatch) {
  PlanMaker make(10, 3);
  int c = make.cls(2, 1), client = make.cls(1, 1);
  int x = make.reg("x", c, make.batch_type(4), Sbp::split(0), 2);
  int y = make.reg("y", c, make.batch_type(4), Sbp::split(0));
  int z = make.reg("z", client, make.batch_type(4), Sbp::broadcast(), 2);
  make.feed("x", c, x).firings = 3;
  make.op("where", "where_am_i", c, {{x}}, {{y}}).firings = 3;
  make.move("home", client, y, z).firings = 3;
  make.sink("z", client, z).firings = 3;
  auto f = floor(make.plan);
  f->set_step(5);
  f->grant(2);
  for (int step = 0; step < 2; ++step)
    f->feed({{"x", array_of({step ? 10 : 7, 4}, std::vector<float>(step ? 40 : 28))}});
  EXPECT_EQ(values_of(next(*f).outputs["z"]), ramp(28, 5000));
  StepResult second = next(*f);
  EXPECT_EQ(second.step, 6);
  EXPECT_EQ(values_of(second.outputs["z"]), ramp(40, 6000));
}

// w' = w + g on each of two ranks; the loss reads the w of `slots - 1` steps ago.
void variable_plan(PlanMaker& make, int slots) {
  int c = make.cls(2, 2), client = make.cls(1, 1);
  auto split = Sbp::split(0);
  int w = make.variable("w", c, make.fixed_type({3}), split, slots);
  int k = make.reg("k", c, make.fixed_type({3}), split);
  make.plan.registers[size_t(k)].variable = "k";
  int g = make.reg("g", c, make.fixed_type({3}), split);
  int seen = make.reg("seen", c, make.fixed_type({3}), split);
  int z = make.reg("z", client, make.fixed_type({3}));
  make.feed("g", c, g, 1);
  PlanActor& look = make.op("look", "add_two", c, {{w}, {g}}, {{seen}});
  look.ops[0].in = {make.tensor(w), make.tensor(k)};  // g only brings the step
  PlanActor& update = make.op("update", "add_two", c, {{g}}, {{w}});
  update.ops[0].in = {make.tensor(w), make.tensor(g)};
  make.move("home", client, seen, z);
  make.sink("z", client, z);
}

TEST_P(EveryWay, VariablesAreUpdatedAndAsStaleAsTheirSlots) {
  for (int slots : {1, 3}) {
    PlanMaker make;
    variable_plan(make, slots);
    auto f = floor(make.plan);
    f->set_variable("w", array_of({3}, {1, 2, 3}));
    f->set_variable("k", array_of({3}, {100, 100, 100}));
    for (int round = 0; round < 2; ++round) {
      f->grant(6);
      for (int step = 0; step < 6; ++step) f->feed({{"g", array_of({3}, {1, 1, 1})}});
      for (int step = 0; step < 6; ++step) {
        float updates = float(std::max(0, round * 6 + step - (slots - 1)));
        EXPECT_THAT(values_of(next(*f).outputs["z"]), ElementsAre(101 + updates, 102 + updates, 103 + updates))
            << slots << " slots, step " << step;
      }
      f->drain();
      float updates = float(6 * (round + 1));
      EXPECT_THAT(values_of(f->variable("w")), ElementsAre(1 + updates, 2 + updates, 3 + updates));
    }
    f->set_variable("w", array_of({3}, {7, 8, 9}));  // into all slots
    f->grant(1);
    f->feed({{"g", array_of({3}, {0, 0, 0})}});
    EXPECT_THAT(values_of(next(*f).outputs["z"]), ElementsAre(107, 108, 109));
    EXPECT_THROW(f->variable("nobody"), Error);
    EXPECT_THROW(f->set_variable("w", array_of({2}, {1, 2})), Error);
  }
}

// The extents travel with this step's data, not with a variable that is read beside it (here through the first port).
TEST_P(EveryWay, TheBatchSizeComesWithTheDataNotWithAVariable) {
  PlanMaker make(4);
  int c = make.cls(1);
  int w = make.variable("w", c, make.fixed_type({2})), x = make.reg("x", c, make.batch_type(2));
  int z = make.reg("z", c, make.batch_type(2)), g = make.reg("g", c, make.fixed_type({2}));
  make.feed("x", c, x);
  make.feed("g", c, g);
  make.op("add", "add_row", c, {{w}, {x}}, {{z}}).ops[0].in = {make.tensor(x), make.tensor(w)};
  make.op("update", "add_two", c, {{g}}, {{w}}).ops[0].in = {make.tensor(w), make.tensor(g)};
  make.sink("z", c, z);
  auto f = floor(make.plan);
  f->grant(4);
  for (int64_t rows = 4; rows > 0; --rows)
    f->feed({{"x", array_of({rows, 2}, ramp(size_t(2 * rows)))}, {"g", array_of({2}, {1, 1})}});
  for (int64_t rows = 4; rows > 0; --rows) {
    StepResult result = next(*f);
    EXPECT_EQ(result.batch, rows);
    EXPECT_EQ(values_of(result.outputs["z"]), ramp(size_t(2 * rows), float(4 - rows)));
  }
}

Plan source_plan(bool shuffle) {
  PlanMaker make(4, 2);
  int c = make.cls(2, 2), client = make.cls(1, 1);
  int x = make.reg("x", c, make.batch_type(2), Sbp::split(0), 2);
  LogicalType label{DType::float32, {{4, batch_sym, 1}}};
  int l = make.reg("l", c, label, Sbp::split(0), 2);
  int z = make.reg("z", client, make.batch_type(2)), n = make.reg("n", client, label);
  make.plan.seed = 11;
  make.plan.sources.push_back({"ten_rows", {}, shuffle});
  PlanActor& source = make.actor("rows", "source", c, {}, {{x}, {l}}, 1);
  source.source = 0;
  source.names = {"x", "1"};
  source.tensors = {make.tensor(x), make.tensor(l)};
  source.firings = 2;
  make.move("home x", client, x, z).firings = 2;
  make.move("home l", client, l, n).firings = 2;
  make.sink("z", client, z).firings = 2;
  make.sink("n", client, n).firings = 2;
  return make.plan;
}

TEST_P(EveryWay, SourcesReadTheirRowsAndTheLastBatchIsSmaller) {
  for (bool shuffle : {false, true}) {
    auto f = floor(source_plan(shuffle));
    EXPECT_EQ(f->rows(), 10);
    f->grant(6);
    std::vector<std::vector<float>> epochs(2);
    for (int step = 0; step < 6; ++step) {
      StepResult result = next(*f);
      EXPECT_EQ(result.batch, step % 3 == 2 ? 2 : 4);
      auto labels = values_of(result.outputs["n"]), x = values_of(result.outputs["z"]);
      ASSERT_EQ(labels.size(), size_t(result.batch));
      for (size_t i = 0; i < labels.size(); ++i) {
        int64_t position = step % 3 * 4 + int64_t(i);
        EXPECT_EQ(labels[i], float(row_at(position, 10, shuffle, 11, step / 3)));
        EXPECT_EQ(x[2 * i], labels[i]);
        EXPECT_EQ(x[2 * i + 1], 100 + labels[i]);
        epochs[size_t(step / 3)].push_back(labels[i]);
      }
    }
    for (auto& epoch : epochs) EXPECT_THAT(epoch, testing::UnorderedElementsAreArray(ramp(10)));
  }
}

TEST_P(EveryWay, AFailureNamesOpRankStepAndPlace) {
  PlanMaker make(2);
  int c = make.cls(2), client = make.cls(1);
  int x = make.reg("x", c, make.batch_type(1), Sbp::split(0), 2),
      y = make.reg("y", c, make.batch_type(1), Sbp::split(0));
  int z = make.reg("z", client, make.batch_type(1));
  make.feed("x", c, x);
  make.op("take_3", "fail_at_two", c, {{x}}, {{y}});
  make.move("home", client, y, z);
  make.sink("z", client, z);
  auto f = floor(make.plan);
  f->grant(5);
  for (int step = 0; step < 5; ++step) f->feed({{"x", array_of({1, 1}, {1})}});  // rank 1 has no row
  auto run = [&] {
    for (int step = 0; step < 5; ++step) next(*f);
  };
  for (int again = 0; again < 2; ++again) {
    try {
      run();
      FAIL() << "no failure";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::index);
      EXPECT_THAT(error.what(), HasSubstr("model.py:7"));
      EXPECT_THAT(error.what(), HasSubstr("op 'take_3'"));
      EXPECT_THAT(error.what(), HasSubstr("step 2"));
      EXPECT_THAT(error.what(), HasSubstr("rank "));
      EXPECT_THAT(error.what(), HasSubstr("index 9 is out of range"));
    }
  }
  EXPECT_THROW(f->drain(), Error);
  EXPECT_THROW(f->grant(1), Error);
}

TEST_P(EveryWay, TwoFloorsInterleave) {
  std::vector<std::unique_ptr<Floor>> floors;
  for (int i = 0; i < 2; ++i) {
    PlanMaker make;
    variable_plan(make, 1);
    floors.push_back(floor(make.plan));
    floors.back()->set_variable("w", array_of({3}, {0, 0, 0}));
  }
  for (int step = 0; step < 5; ++step)
    for (size_t i = 0; i < 2; ++i) {
      floors[i]->grant(1);
      floors[i]->feed({{"g", array_of({3}, {1, 2, float(i)})}});
    }
  for (size_t i = 0; i < 2; ++i) {
    floors[i]->drain();
    EXPECT_THAT(values_of(floors[i]->variable("w")), ElementsAre(5, 10, float(5 * i)));
    if (i == 0) floors[0].reset();
  }
}

TEST_P(EveryWay, WhatDoesNotFitIsRefusedAtTheCall) {
  PlanMaker make(4);
  int c = make.cls(1);
  int x = make.reg("x", c, make.batch_type(2));
  make.feed("x", c, x);
  make.sink("x", c, x);
  auto f = floor(make.plan);
  EXPECT_THROW(f->feed({}), Error);
  EXPECT_THROW(f->feed({{"y", array_of({4, 2}, ramp(8))}}), Error);
  EXPECT_THROW(f->feed({{"x", array_of({5, 2}, ramp(10))}}), Error);
  EXPECT_THROW(f->feed({{"x", array_of({4, 3}, ramp(12))}}), Error);
  EXPECT_THROW(f->feed({{"x", array_of({0, 2}, {})}}), Error);
  EXPECT_THROW(f->feed({{"x", array_of({4, 2}, ramp(7))}}), Error);
  EXPECT_THROW(f->grant(-1), Error);
  EXPECT_THROW(f->grant(int64_t(1) << 31), Error);
  f->feed({{"x", array_of({4, 2}, ramp(8))}});
  EXPECT_EQ(f->wait_step(milliseconds(0)), std::nullopt);  // fed but not granted
  f->grant(1);
  EXPECT_EQ(values_of(next(*f).outputs["x"]), ramp(8));
  EXPECT_EQ(f->wait_step(milliseconds(1)), std::nullopt);
}

TEST(Floor, NothingIsLeftBehind) {
  auto threads = [] {
    int n = 0;
    DIR* dir = opendir("/proc/self/task");
    while (dirent* entry = readdir(dir)) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
  };
  auto run = [](const char* device) {
    Plan plan = source_plan(true);
    plan.device = device;
    FloorOptions options;
    options.workers = 2;
    Floor floor(plan, tables(), options);
    floor.grant(1000);  // more than will be done
    floor.wait_step(milliseconds(20'000));
  };
  run("cpu");  // what the process starts once (a sanitizer's thread, a team) is not ours
  int before = threads();
  for (auto device : {"cpu", "sim", "cpu"}) run(device);
  EXPECT_EQ(threads(), before);
}

TEST(Floor, ANullDeviceKeepsTheFlow) {
  Plan plan = source_plan(false);
  plan.device = "null";
  Floor floor(plan, tables(), {});
  floor.grant(6);
  for (int step = 0; step < 6; ++step) {
    auto result = floor.wait_step(milliseconds(20'000));
    ASSERT_TRUE(result);
    EXPECT_EQ(result->batch, step % 3 == 2 ? 2 : 4);
    EXPECT_EQ(result->outputs["z"].dims, (std::vector<int64_t>{result->batch, 2}));
  }
}

TEST(Floor, APlanWithoutOutputsStillHasSteps) {
  for (bool inline_drive : {true, false}) {
    Plan plan = source_plan(false);
    std::erase_if(plan.actors, [](const PlanActor& actor) { return actor.kind == "sink"; });
    FloorOptions options;
    options.inline_drive = inline_drive;
    Floor floor(plan, tables(), options);
    floor.grant(3);
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(floor.wait_step(milliseconds(20'000)));
    EXPECT_EQ(floor.steps_done(), 3);
  }
}

// b waits for a's token, a for the credit that b holds: two in-ports of different rates on one slot.
Plan stalled_plan() {
  PlanMaker make;
  int c = make.cls(1);
  int x = make.reg("x", c, make.fixed_type({1})), y = make.reg("y", c, make.fixed_type({1}));
  int back = make.reg("back", c, make.fixed_type({1}));
  make.feed("x", c, x);
  make.op("a", "no_work", c, {{x}, {back}}, {{y}});
  make.op("b", "no_work", c, {{y}}, {{back}});
  return make.plan;
}

TEST(Floor, AStallIsReportedWithItsCycle) {
  for (bool inline_drive : {true, false}) {
    FloorOptions options;
    options.inline_drive = inline_drive;
    options.watchdog = milliseconds(50);
    Floor floor(stalled_plan(), tables(), options);
    floor.grant(1);
    floor.feed({{"x", array_of({1}, {1})}});
    try {
      floor.drain();
      FAIL() << "no stall";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("actor 'a' on rank 0 waits for a full slot of 'back' (0 of 1) from actor 'b'"));
      EXPECT_THAT(error.what(), HasSubstr("actor 'b' on rank 0 waits for a full slot of 'y' (0 of 1) from actor 'a'"));
      EXPECT_THAT(error.what(), HasSubstr("a cycle"));
    }
  }
}

TEST(Floor, WaitingForAFeedIsNoStall) {
  PlanMaker make(1);
  int c = make.cls(1);
  int x = make.reg("x", c, make.batch_type(1));
  make.feed("x", c, x);
  make.sink("x", c, x);
  FloorOptions options;
  options.watchdog = milliseconds(20);
  Floor floor(make.plan, tables(), options);
  floor.grant(1);
  EXPECT_EQ(floor.wait_step(milliseconds(200)), std::nullopt);
  floor.feed({{"x", array_of({1, 1}, {4})}});
  EXPECT_TRUE(floor.wait_step(milliseconds(20'000)));
}

TEST(Floor, BrokenPlansAreRefused) {
  PlanMaker make(1);
  int c = make.cls(1);
  int x = make.reg("x", c, make.batch_type(1));
  make.feed("x", c, x);
  make.op("inc", "add_one", c, {{x}}, {});
  auto refused = [](auto change, Plan plan) {
    change(plan);
    EXPECT_THROW(Floor(plan, tables(), {}), Error);
  };
  refused([](Plan& p) { p.device = "tpu"; }, make.plan);
  refused([](Plan& p) { p.actors[0].kind = "wizard"; }, make.plan);
  refused([](Plan& p) { p.actors[0].stream = 3; }, make.plan);
  refused([](Plan& p) { p.actors[1].in[0].reg = 9; }, make.plan);
  refused([](Plan& p) { p.actors[1].in[0].period = 2; }, make.plan);
  refused([](Plan& p) { p.registers[0].offset = 1 << 30; }, make.plan);
  refused([](Plan& p) { p.registers[0].initial = 2; }, make.plan);
  refused([](Plan& p) { p.classes[0].arena_bytes = int64_t(1) << 50; }, make.plan);
  refused([](Plan& p) { p.actors[1].ops[0].op = "no_such_op"; }, make.plan);
}

}  // namespace
}  // namespace sluice
