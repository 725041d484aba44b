// SPDX-License-Identifier: Apache-2.0
#include "graph/job_file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "graph/wire.h"

namespace sluice {
namespace wire {

// Static, not in an unnamed namespace: lists find put and get by the argument's namespace.
static constexpr std::string_view magic = "SLUICEJ1";

static void put(Tensor::Builder to, const sluice::Tensor& from) {
  to.setName(text(from.name));
  put(to.initType(), from.type);
  to.setProducer(from.producer);
  to.setOutput(from.output);
}
static sluice::Tensor get(Tensor::Reader from) {
  return {text(from.getName()), get(from.getType()), from.getProducer(), from.getOutput()};
}

static void put(Node::Builder to, const sluice::Node& from) {
  to.setOp(text(from.op));
  to.setName(text(from.name));
  put_numbers<int32_t>(to.initInputs(unsigned(from.inputs.size())), from.inputs);
  put_numbers<int32_t>(to.initOutputs(unsigned(from.outputs.size())), from.outputs);
  put_all(to.initAttrs(unsigned(from.attrs.size())), from.attrs);
  put(to.initPlace(), from.place);
  to.setPhase(Phase(from.phase));
  to.setOrigin(from.origin);
  to.setOf(text(from.of));
}
static sluice::Node get(Node::Reader from) {
  sluice::Node node{.op = text(from.getOp()), .name = text(from.getName())};
  node.inputs = get_numbers(from.getInputs());
  node.outputs = get_numbers(from.getOutputs());
  node.attrs = get_all(from.getAttrs());
  node.place = get(from.getPlace());
  node.phase = get(from.getPhase());
  node.origin = from.getOrigin();
  node.of = text(from.getOf());
  return node;
}

static void put(Variable::Builder to, const sluice::Variable& from) {
  to.setName(text(from.name));
  to.setValue(from.value);
  to.setNext(from.next);
  to.setFrozen(!from.trainable);
  to.setOf(text(from.of));
}
static sluice::Variable get(Variable::Reader from) {
  return {text(from.getName()), from.getValue(), from.getNext(), !from.getFrozen(), text(from.getOf())};
}

static void put(Input::Builder to, const sluice::Input& from) {
  to.setName(text(from.name));
  to.setTensor(from.tensor);
  to.setSource(from.source);
  to.setField(from.field);
}
static sluice::Input get(Input::Reader from) {
  return {text(from.getName()), from.getTensor(), from.getSource(), from.getField()};
}

static void put(Output::Builder to, const sluice::Output& from) {
  to.setName(text(from.name));
  to.setTensor(from.tensor);
}
static sluice::Output get(Output::Reader from) { return {text(from.getName()), from.getTensor()}; }

static void put(Graph::Builder to, const sluice::Graph& from) {
  put_all(to.initTensors(unsigned(from.tensors.size())), from.tensors);
  put_all(to.initNodes(unsigned(from.nodes.size())), from.nodes);
  put_all(to.initVariables(unsigned(from.variables.size())), from.variables);
  put_all(to.initInputs(unsigned(from.inputs.size())), from.inputs);
  put_all(to.initSources(unsigned(from.sources.size())), from.sources);
  put_all(to.initOutputs(unsigned(from.outputs.size())), from.outputs);
  to.setBatchBound(from.batch_bound);
}
static sluice::Graph get(Graph::Reader from) {
  sluice::Graph graph;
  graph.tensors = get_all(from.getTensors());
  graph.nodes = get_all(from.getNodes());
  graph.variables = get_all(from.getVariables());
  graph.inputs = get_all(from.getInputs());
  graph.sources = get_all(from.getSources());
  graph.outputs = get_all(from.getOutputs());
  graph.batch_bound = from.getBatchBound();
  return graph;
}

static sluice::Job get(Job::Reader from) {
  sluice::Job job{.name = text(from.getName()), .graph = get(from.getGraph())};
  job.loss = from.getLoss();
  job.optimizer = text(from.getOptimizer());
  job.optimizer_attrs = get_all(from.getOptimizerAttrs());
  job.seed = from.getSeed();
  job.training = !from.getEvaluate();
  return job;
}

}  // namespace wire

std::vector<std::byte> encode(const Job& job) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<wire::Job>();
  root.setName(wire::text(job.name));
  wire::put(root.initGraph(), job.graph);
  root.setLoss(job.loss);
  root.setOptimizer(wire::text(job.optimizer));
  wire::put_all(root.initOptimizerAttrs(unsigned(job.optimizer_attrs.size())), job.optimizer_attrs);
  root.setSeed(job.seed);
  root.setEvaluate(!job.training);
  return wire::seal<wire::Job>(wire::magic, message);
}

Job decode_job(std::span<const std::byte> bytes) {
  Job job;
  wire::open(wire::magic, "job", bytes, [&](capnp::MessageReader& reader) {
    job = wire::get(reader.getRoot<wire::Job>());
    check_graph(job.graph);
    if (job.loss < no_tensor || job.loss >= TensorId(job.graph.tensors.size()))
      throw Error(Code::io, fmt::format("its loss is tensor {}, which does not exist", job.loss));
  });
  return job;
}

void save_job(const Job& job, const std::string& path) {
  auto bytes = encode(job);
  std::string draft = path + ".part";
  std::ofstream file(draft, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  file.close();
  std::error_code failure;
  if (file) std::filesystem::rename(draft, path, failure);
  if (!file || failure) {
    std::string why = failure ? failure.message() : std::strerror(errno);
    std::filesystem::remove(draft, failure);
    throw Error(Code::io, fmt::format("the job file {} cannot be written: {}", path, why), {},
                "check that the folder exists, may be written to and has room");
  }
}

Job load_job(const std::string& path) {
  std::error_code failure;
  auto size = std::filesystem::file_size(path, failure);
  if (failure)
    throw Error(failure == std::errc::no_such_file_or_directory ? Code::not_found : Code::io,
                fmt::format("the job file {} cannot be read: {}", path, failure.message()), {},
                "write one with job.save(path)");
  if (size > wire::frame_bytes_max) throw Error(Code::io, fmt::format("{} is too large to be a job file", path));
  std::vector<std::byte> bytes(size);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), std::streamsize(size));
  bytes.resize(size_t(file.gcount()));
  try {
    return decode_job(bytes);
  } catch (const Error& error) {
    throw Error(error.code(), path + ": " + error.message(), error.place(), "write it again with job.save(path)");
  }
}

}  // namespace sluice
