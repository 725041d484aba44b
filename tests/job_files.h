// SPDX-License-Identifier: Apache-2.0
// A job on real data, as files that the command takes; shared by the tests of the command.
#pragma once
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "graph/job_file.h"
#include "tests/models.h"

namespace sluice::testing {

// 784-16-classes on the data set's files. With fewer than ten classes its first step fails: a label is out of range.
inline Job classifier(const OpTable& ops, int64_t classes = 10) {
  Job job;
  job.name = "classifier";
  job.graph.batch_bound = 64;
  job.graph.sources.push_back({"idx", {{"path", "/usr/share/datasets/fashion-mnist"}, {"split", "test"}}, true});
  Builder build(job.graph, ops);
  build.place = {"net.py", 12};
  TensorId x = build.input("x", {DType::float32, batched(64, {28, 28})}, 0, 0);
  TensorId y = build.input("y", {DType::int64, batched(64, {})}, 0, 1);
  x = build.op("reshape", {x}, {{"shape", batched(64, {784})}});
  TensorId h = build.op("relu", {linear(build, "fc1", x, 784, 16, DType::float32)});
  h = linear(build, "fc2", h, 16, classes, DType::float32);
  build.place = {"net.py", 20};
  job.loss = build.op("cross_entropy", {h, y});
  job.graph.outputs.push_back({"loss", job.loss});
  job.optimizer = "adam";
  return job;
}

// First weights for the job's variables. Returns their names.
inline std::vector<std::string> write_weights(const Job& job, const std::string& path) {
  std::vector<std::string> names;
  std::vector<HostArray> values;
  for (auto& variable : job.graph.variables) {
    names.push_back(variable.name);
    auto& type = job.graph.type(variable.value);
    values.push_back(random_array(type.dtype, sizes_of(type.shape), values.size() + 1, 0.1));
  }
  std::vector<NamedArray> arrays;
  for (size_t i = 0; i < names.size(); ++i)
    arrays.push_back({names[i], values[i].dtype, values[i].dims, values[i].data});
  write_safetensors(path, arrays);
  return names;
}

}  // namespace sluice::testing
