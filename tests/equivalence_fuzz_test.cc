// SPDX-License-Identifier: Apache-2.0
// Equivalence fuzz: random models on random meshes with random micro-batches, pins and switches give the losses and
// the weights of one device. A seeded sample by default; SLUICE_SOAK=1 runs many more.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "launcher/session.h"
#include "tests/models.h"
#include "tests/split.h"

namespace sluice {
namespace {

const Tables& tables() {
  static const Tables all = builtin_tables();
  return all;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t pick(int64_t n) { return int64_t(engine_() % uint64_t(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list[size_t(pick(int64_t(list.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

struct Model {
  Job job;
  int64_t batch = 0, features = 0, classes = 0;
};

// A random graph of activations [batch, width]: linear layers (some tied), residuals, element-wise ops, dropout,
// softmax, reductions over the batch that come back by broadcasting; the loss is cross-entropy plus a penalty.
class ModelMaker {
 public:
  ModelMaker(Random& random, Model& model) : random_(random), model_(model), build_(model.job.graph, tables().ops) {}

  void run() {
    model_.batch = 5 + random_.pick(20);
    model_.features = 3 + random_.pick(9);
    model_.classes = 2 + random_.pick(6);
    model_.job.name = "fuzz";
    model_.job.seed = uint64_t(random_.pick(1000));
    model_.job.graph.batch_bound = model_.batch;
    TensorId x = build_.input("x", {DType::float64, testing::batched(model_.batch, {model_.features})});
    TensorId y = build_.input("y", {DType::int64, testing::batched(model_.batch, {})});
    live_ = {{x, model_.features}};
    int64_t ops = 4 + random_.pick(16);
    for (int64_t i = 0; i < ops; ++i) grow();
    TensorId logits = layer(live_.back().first, live_.back().second, model_.classes);
    TensorId loss = build_.op("cross_entropy", {logits, y});
    if (random_.chance(50)) {
      TensorId penalty = build_.op("mean", {build_.op("square", {live_.back().first})});
      loss = build_.op("add", {loss, build_.op("multiply", {penalty, build_.constant(0.1, DType::float64)})});
    }
    model_.job.loss = loss;
    model_.job.graph.outputs.push_back({"loss", loss});
    if (random_.chance(40)) model_.job.graph.outputs.push_back({"logits", logits});
    model_.job.optimizer = random_.of(std::vector<std::string>{"sgd", "adam", "adamw"});
    model_.job.optimizer_attrs = {{"lr", 0.02}};
  }

 private:
  using Live = std::pair<TensorId, int64_t>;

  TensorId layer(TensorId x, int64_t in, int64_t out) {
    return testing::linear(build_, fmt::format("layer{}", layers_++), x, in, out, DType::float64);
  }

  void grow() {
    auto [x, width] = random_.chance(70) ? live_.back() : random_.of(live_);
    TensorId made = x;
    switch (random_.pick(9)) {
      case 0:
      case 1: {
        int64_t out = 2 + random_.pick(10);
        made = layer(x, width, out);
        width = out;
        break;
      }
      case 2: made = build_.op("relu", {x}); break;
      case 3: made = build_.op("tanh", {x}); break;
      case 4: made = build_.op("dropout", {x}, {{"p", 0.25}}); break;
      case 5: made = build_.op("softmax", {x}); break;
      case 6: {  // residual with any other of its width
        TensorId other = x;
        for (auto& [t, w] : live_)
          if (w == width) other = t;
        made = build_.op(random_.chance(50) ? "add" : "subtract", {build_.op("tanh", {x}), other});
        break;
      }
      case 7: {  // a tied square weight, used twice; some are frozen
        TensorId w = build_.variable(fmt::format("tied{}", layers_++), {DType::float64, fixed_shape({width, width})},
                                     random_.chance(60));
        made =
            build_.op("matmul", {build_.op("tanh", {build_.op("matmul", {x, w})}), build_.op("matrix_transpose", {w})});
        break;
      }
      case 8:
        made = build_.op("multiply", {x, build_.op("exp", {build_.op("negative", {build_.op("square", {x})})})});
        break;
    }
    live_.push_back({made, width});
  }

  Random& random_;
  Model& model_;
  Builder build_;
  std::vector<Live> live_;
  int layers_ = 0;
};

std::string random_config(Random& random, const Model& model) {
  std::vector<std::string> meshes{"dp = 2",
                                  "dp = 3",
                                  "tp = 2",
                                  "tp = 3",
                                  "dp = 2, tp = 2",
                                  "tp = 2, dp = 2",
                                  "dp = 4",
                                  "dp = 2, tp = 3",
                                  "pp = 2",
                                  "pp = 2, dp = 2",
                                  "pp = 2, tp = 2",
                                  "pp = 3",
                                  "pp = 2, dp = 2, tp = 2"};
  std::string config = "[mesh]\naxes = { " + random.of(meshes) + " }\n[train]\n";
  config += fmt::format("micro_batch = {}\n", 1 + random.pick(model.batch));
  if (random.chance(30)) config += "clip_norm = 0.1\n";
  if (random.chance(20)) config += "[debug]\ncoalesce = false\n";
  if (random.chance(20)) config += "[memory]\nreuse = false\n";
  if (random.chance(15)) config += "[device]\nkind = \"sim\"\n";
  if (random.chance(20) && config.find("dp") != config.npos) config += "[zero]\nstage = 1\naxes = [\"dp\"]\n";
  if (random.chance(25))
    config += "[mesh.servers]\npool = \"ps\"\naxes = { shard = " + std::to_string(1 + random.pick(3)) +
              " }\n[[rule]]\nmatch = '" + (random.chance(50) ? "." : "weight|tied|layer0") + "'\nmesh = \"servers\"\n";
  else if (random.chance(30) && config.find("tp") != config.npos)
    config += std::string("[[rule]]\nmatch = 'layer'\nsbp = { tp = \"") + (random.chance(50) ? "S(0)" : "B") + "\" }\n";
  return config;
}

struct Trained {
  std::vector<std::vector<double>> outputs;
  std::map<std::string, std::vector<double>> weights;
};

Trained train(const Model& model, const std::string& config, int processes, const testing::Crossing& crossing) {
  StartPlan start;
  if (processes > 1) start = testing::split_over(tables(), processes, crossing);
  Session session(model.job, parse_config(config, "fuzz.toml"), tables(), start);
  uint64_t seed = 1;
  for (auto& variable : model.job.graph.variables)
    session.set_variable(
        variable.name,
        testing::random_array(DType::float64, sizes_of(model.job.graph.type(variable.value).shape), seed++, 0.5));
  Trained result;
  for (int64_t step = 0; step < 3; ++step) {
    int64_t rows = step == 1 ? 1 + model.batch / 3 : model.batch;
    std::mt19937_64 labels{uint64_t(step)};
    session.feed(
        {{"x", testing::random_array(DType::float64, {rows, model.features}, uint64_t(step) + 50, 1.0)},
         {"y", testing::array_of(DType::int64, {rows}, [&](int64_t) { return labels() % uint64_t(model.classes); })}});
    session.grant(1);
    auto done = session.wait_step(std::chrono::seconds(60));
    if (!done) throw Error(Code::failed, "a step took longer than a minute");
    for (auto& [name, array] : done->outputs) result.outputs.push_back(testing::values_of(array));
  }
  for (auto& name : session.variables()) result.weights[name] = testing::values_of(session.variable(name));
  return result;
}

bool near(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= 1e-9 * std::max(1.0, std::abs(b[i])))) return false;
  return true;
}

TEST(EquivalenceFuzz, EveryPlanOfARandomModelEqualsOneDevice) {
  bool soak = std::getenv("SLUICE_SOAK") != nullptr;
  uint64_t cases = soak ? 5000 : 120, refused = 0;
  uint64_t first = 0;
  if (const char* text = std::getenv("SLUICE_FUZZ_SEED")) first = std::strtoull(text, nullptr, 10), cases = first + 1;
  for (uint64_t seed = first; seed < cases; ++seed) {
    Random random(seed);
    Model model;
    ModelMaker(random, model).run();
    std::string config = random_config(random, model);
    int processes = 1 + int(random.pick(4));
    int64_t hosts = random.pick(10);  // most: none, what crosses is copied within this process
    auto crossing = hosts < 3 ? testing::over_hosts(int(hosts)) : testing::Crossing(testing::copying);
    SCOPED_TRACE(fmt::format("seed {}, {} processes, {}\n{}", seed, processes, hosts, config));
    Trained many;
    try {
      many = train(model, config, processes, crossing);
    } catch (const Error& error) {
      // A model may be too short to cut, or lack what a rule names; everything else is our fault.
      ASSERT_EQ(error.code(), Code::usage) << error.what();
      ++refused;
      continue;
    }
    auto clip = config.find("clip_norm") != config.npos ? "[train]\nclip_norm = 0.1\n" : "";
    Trained one = train(model, clip, 1, {});
    ASSERT_EQ(many.outputs.size(), one.outputs.size());
    for (size_t i = 0; i < one.outputs.size(); ++i)
      ASSERT_TRUE(near(many.outputs[i], one.outputs[i])) << "output " << i;
    for (auto& [name, values] : one.weights) ASSERT_TRUE(near(many.weights.at(name), values)) << name;
  }
  EXPECT_LE(refused, cases / 4);
}

}  // namespace
}  // namespace sluice
