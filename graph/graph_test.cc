// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "graph/job_file.h"

namespace sluice {
namespace {

using Bytes = std::vector<std::byte>;

// A layer with its loss, its gradient and its update.
Job sample() {
  LogicalType rows{DType::float32, {{8, batch_sym}, {4}}}, weight{DType::float32, {{4}, {4}}};
  Job job{.name = "a \"job\"", .seed = ~uint64_t(0)};
  Graph& g = job.graph;
  g.batch_bound = 8;
  g.sources = {{"idx", {{"path", std::string("/data/x")}, {"scale", 0.5}}, false}};
  g.tensors = {{"x", rows},       {"w", weight},
               {"y", rows, 0},    {"loss", {DType::float32, {}}, 1},
               {"gw", weight, 2}, {"w.next", weight, 3, 0},
               {"fed", rows}};
  g.nodes = {{"matmul", "matmul_1", {0, 1}, {2}, {}, {"net.py", 3}},
             {"mean", "mean_1", {2}, {3}, {{"axis", std::vector<int64_t>{0, 1}}, {"keepdims", false}}},
             {"matmul", "grad_1", {0, 2}, {4}, {}, {}, Phase::backward, 0},
             {"sgd", "sgd_1", {1, 4}, {5}, {{"lr", 0.1}}, {}, Phase::optimizer, -1, "w"}};
  g.variables = {{"w", 1, 5, true, ""}};
  g.inputs = {{"x", 0, 0, 1}, {"fed", 6}};
  g.outputs = {{"loss", 3}};
  job.loss = 3;
  job.optimizer = "adam";
  job.optimizer_attrs = {{"lr", 1e-3}, {"shape", Shape{{8, batch_sym, 2}}}, {"dtype", DType::bool_}};
  job.training = false;
  return job;
}

TEST(Graph, TextIsOneLineANode) {
  EXPECT_EQ(text_of(sample().graph), R"(batch 8
source idx {path="/data/x", scale=0.5} in order
input x float32[8b,4] from source 0 field 1
input fed float32[8b,4] from the client
variable w float32[4,4] next w.next
y float32[8b,4] = matmul(x, w)
loss float32[] = mean(y) {axis=[0,1], keepdims=false}
gw float32[4,4] = matmul(x, y) backward of matmul_1
w.next float32[4,4] = sgd(w, gw) {lr=0.1} optimizer of w
output loss = loss
)");
}

TEST(Graph, BrokenGraphsArePrintedToo) {
  Graph g = sample().graph;
  g.nodes[0].inputs = {-1, 99};
  g.outputs[0].tensor = 7;
  EXPECT_THAT(text_of(g), testing::HasSubstr("matmul(?-1, ?99)"));
}

struct Break {
  std::function<void(Graph&)> change;
  std::string_view why;
};

TEST(Graph, EachInvariantIsChecked) {
  EXPECT_NO_THROW(check_graph(sample().graph));
  for (auto& [change, why] : std::initializer_list<Break>{
           {[](Graph& g) { g.batch_bound = -1; }, "the batch's bound is negative"},
           {[](Graph& g) { g.tensors[0].name = "w"; }, "the name w of a tensor is empty or not unique"},
           {[](Graph& g) { g.nodes[1].name = "matmul_1"; }, "the name matmul_1 of a node"},
           {[](Graph& g) { g.nodes[1].name = ""; }, "the name \"\" of a node"},
           {[](Graph& g) { g.inputs[1].name = "x"; }, "the name x of an input"},
           {[](Graph& g) {
              g.outputs.push_back({"loss", 2});
            },
            "the name loss of an output"},
           {[](Graph& g) { g.nodes[1].attrs[1].name = "axis"; }, "of an attribute of the node mean_1"},
           {[](Graph& g) { g.tensors[0].type.shape[0].granule = 3; },
            "the tensor x: a dim has size 8, symbol 1 and granule 3"},
           {[](Graph& g) { g.tensors[0].type.shape[1].size = -4; }, "a dim has size -4"},
           {[](Graph& g) { g.tensors[0].type.shape[1].sym = syms_max; }, "symbol 4"},
           {[](Graph& g) {
              g.tensors[0].type.shape = fixed_shape({1 << 30, 1 << 30});
            },
            "is too large"},
           {[](Graph& g) { g.tensors[0].type.shape.resize(rank_max + 1, {1}); }, "at most 8 dims"},
           {[](Graph& g) { g.nodes[0].inputs[0] = 7; }, "the node matmul_1 names tensor 7, which does not exist"},
           {[](Graph& g) { g.nodes[0].inputs[0] = -1; }, "names tensor -1"},
           {[](Graph& g) { g.nodes[0].inputs[0] = 3; }, "reads loss before it is made"},
           {[](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }, "before it is made"},
           {[](Graph& g) { g.tensors[2].producer = 1; }, "the node matmul_1 makes y, which names another producer"},
           {[](Graph& g) { g.tensors[2].output = 1; }, "names another producer"},
           {[](Graph& g) {
              g.nodes[0].outputs = {2, 2};
            },
            "names another producer"},
           {[](Graph& g) { g.nodes[0].outputs = {0}; }, "names another producer"},
           {[](Graph& g) {
              g.tensors.push_back({"lost", {}});
            },
            "nothing produces the tensor lost"},
           {[](Graph& g) { g.inputs[1].tensor = 0; }, "the input fed is not the only producer of its tensor x"},
           {[](Graph& g) { g.inputs[1].tensor = 2; }, "the input fed is not the only producer of its tensor y"},
           {[](Graph& g) { g.inputs[0].source = 1; }, "the input x names source 1"},
           {[](Graph& g) { g.inputs[0].field = -1; }, "field -1"},
           {[](Graph& g) { g.variables[0].next = 3; },
            "the variable w changes its type from float32[4,4] to float32[]"},
           {[](Graph& g) { g.variables[0].next = 9; }, "the variable w names tensor 9"},
           {[](Graph& g) { g.variables[0].of = "v"; }, "belongs to v, which does not exist"},
           {[](Graph& g) { g.outputs[0].tensor = -1; }, "the output loss names tensor -1"},
           {[](Graph& g) { g.nodes[2].origin = 4; }, "comes from node 4"},
           {[](Graph& g) { g.nodes[2].phase = Phase(3); }, "has no phase that exists"}}) {
    Graph g = sample().graph;
    change(g);
    try {
      check_graph(g);
      ADD_FAILURE() << "taken, but should say: " << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::value);
      EXPECT_THAT(error.message(), testing::HasSubstr(std::string(why)));
    }
  }
}

TEST(JobFile, RoundTrips) {
  Job job = sample();
  EXPECT_EQ(decode_job(encode(job)), job);
  EXPECT_EQ(encode(decode_job(encode(job))), encode(job));
  EXPECT_EQ(decode_job(encode(Job{})), Job{});
}

void sign(Bytes& bytes) {
  uint64_t sum = XXH64(bytes.data() + 16, bytes.size() - 16, 0);
  std::memcpy(bytes.data() + 8, &sum, 8);
}

TEST(JobFile, CorruptBytesNeverCrash) {
  std::mt19937_64 random(1);
  Bytes bytes = encode(sample());
  int taken = 0;
  for (int trial = 0; trial < 5'000; ++trial) {
    Bytes corrupt = bytes;
    for (size_t n = 1 + random() % 3; n-- > 0;) {
      size_t at = 16 + random() % (corrupt.size() - 16);
      if (random() % 4 == 0)
        corrupt[at] = std::byte(random());
      else
        corrupt[at] ^= std::byte(1 << random() % 8);
    }
    if (random() % 4 == 0) corrupt.resize(24 + random() % (corrupt.size() - 24) / 8 * 8);
    sign(corrupt);
    try {
      Job job = decode_job(corrupt);
      ++taken;
      text_of(job.graph);
      EXPECT_EQ(encode(decode_job(encode(job))), encode(job));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io);
    }
  }
  EXPECT_GT(taken, 50);
}

TEST(JobFile, BytesThatAreNoJob) {
  Bytes bytes = encode(sample());
  auto why = [](const Bytes& bytes) {
    try {
      decode_job(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io);
      return error.message();
    }
    return std::string("none");
  };
  EXPECT_THAT(why({}), testing::HasSubstr("does not start with SLUICEJ1"));
  EXPECT_THAT(why(Bytes(bytes.begin(), bytes.end() - 8)), testing::HasSubstr("cut or corrupt"));
  EXPECT_THAT(why(Bytes(bytes.begin(), bytes.end() - 3)), testing::HasSubstr("length"));
  Job job = sample();
  job.loss = 7;
  EXPECT_THAT(why(encode(job)), testing::HasSubstr("its loss is tensor 7"));
  job = sample();
  job.graph.nodes[0].inputs[0] = 3;
  EXPECT_THAT(why(encode(job)), testing::HasSubstr("before it is made"));
}

TEST(JobFile, IsWrittenWholeOrNotAtAll) {
  auto folder = std::filesystem::temp_directory_path() / ("job_file_test." + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::string path = folder / "net.job";
  save_job(sample(), path);
  EXPECT_EQ(load_job(path), sample());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::resize_file(path, 40);
  EXPECT_THROW(load_job(path), Error);
  auto code = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return Code::usage;
  };
  EXPECT_EQ(code([&] { load_job(folder / "none.job"); }), Code::not_found);
  EXPECT_EQ(code([&] { load_job(folder); }), Code::io);
  EXPECT_EQ(code([&] { save_job(sample(), folder / "none" / "net.job"); }), Code::io);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice
