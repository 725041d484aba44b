// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "launcher/cluster/rpc.h"

namespace sluice {
namespace {

constexpr int dims_max = 64;
constexpr unsigned ranks_max = 1 << 20;

[[noreturn]] void wrong(const std::string& what) {
  throw Error(Code::io, "a message of the cluster is wrong: " + what);
}

std::string string_of(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

capnp::Text::Reader text_in(const std::string& text) { return {text.data(), text.size()}; }

std::string bytes_in(capnp::Data::Reader bytes) { return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()}; }

capnp::Data::Reader data_in(const std::string& bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}

template <class Values, class Init>
void put_list(const Values& values, Init&& init) {
  auto list = init(kj::uint(values.size()));
  for (kj::uint i = 0; i < list.size(); ++i) list.set(i, values[i]);
}

template <class T, class List>
std::vector<T> list_of(List list, unsigned size_max) {
  if (list.size() > size_max) wrong("a list is too long");
  std::vector<T> values;
  values.reserve(list.size());
  for (auto value : list) values.push_back(T(value));
  return values;
}

template <class List>
Extents extents_of(List list) {
  Extents extents{};
  if (list.size() > extents.size()) wrong("too many extents");
  for (kj::uint i = 0; i < list.size(); ++i) extents[i] = list[i];
  return extents;
}

void put(wire::Chunk::Builder to, const Chunk& chunk) {
  to.setName(text_in(chunk.name));
  to.setDtype(uint8_t(chunk.dtype));
  put_list(chunk.dims, [&](kj::uint size) { return to.initDims(size); });
  to.setTotalBytes(chunk.total);
  to.setOffset(chunk.offset);
  to.setData(bytes_of(chunk.data));
}

Chunk chunk_of(wire::Chunk::Reader from) {
  if (from.getDtype() >= dtype_names.size()) wrong("no such dtype");
  return {string_of(from.getName()), DType(from.getDtype()), list_of<int64_t>(from.getDims(), dims_max),
          from.getTotalBytes(),      from.getOffset(),       vector_of(from.getData())};
}

template <class Init>
void put_chunks(const std::vector<Chunk>& chunks, Init&& init) {
  auto list = init(kj::uint(chunks.size()));
  for (kj::uint i = 0; i < list.size(); ++i) put(list[i], chunks[i]);
}

template <class List>
std::vector<Chunk> chunks_of(List list) {
  std::vector<Chunk> chunks;
  for (auto chunk : list) chunks.push_back(chunk_of(chunk));
  return chunks;
}

template <class Init>
void put_counts(const std::map<std::string, int64_t>& counts, Init&& init) {
  auto list = init(kj::uint(counts.size()));
  kj::uint i = 0;
  for (auto& [name, value] : counts) {
    list[i].setName(text_in(name));
    list[i++].setValue(value);
  }
}

template <class List>
std::map<std::string, int64_t> counts_of(List list) {
  std::map<std::string, int64_t> counts;
  for (auto count : list) counts[string_of(count.getName())] = count.getValue();
  return counts;
}

}  // namespace

void put(wire::Failure::Builder to, const Failure& failure) {
  auto& error = failure.error;
  to.setCode(uint8_t(error.code()));
  to.setMessage(text_in(error.message().empty() ? "it failed" : error.message()));
  to.setFile(text_in(error.place().file));
  to.setLine(error.place().line);
  to.setNext(text_in(error.next()));
  to.setLostProcess(failure.lost_process);
  to.setConsequence(failure.consequence);
}

std::optional<Failure> failure_of(wire::Failure::Reader from) {
  std::string message = string_of(from.getMessage());
  if (message.empty()) return std::nullopt;
  if (from.getCode() > uint8_t(Code::failed)) wrong("no such kind of error");
  return Failure{
      Error(Code(from.getCode()), message, {string_of(from.getFile()), from.getLine()}, string_of(from.getNext())),
      from.getLostProcess(), from.getConsequence()};
}

void put(wire::Command::Builder to, const Command& command) {
  to.setKind(command.kind);
  to.setName(text_in(command.name));
  put_list(command.ranks, [&](kj::uint size) { return to.initRanks(size); });
  to.setNumber(command.number);
  put_list(command.extents, [&](kj::uint size) { return to.initExtents(size); });
  put_chunks(command.chunks, [&](kj::uint size) { return to.initChunks(size); });
  to.setLast(command.last);
}

Command command_of(wire::Command::Reader from) {
  if (from.getKind() >= Command::kinds) wrong("no such command");
  return {Command::Kind(from.getKind()),
          string_of(from.getName()),
          list_of<int>(from.getRanks(), ranks_max),
          from.getNumber(),
          extents_of(from.getExtents()),
          chunks_of(from.getChunks()),
          from.getLast()};
}

void put(wire::Reply::Builder to, const Reply& reply) {
  if (reply.failure) put(to.initFailure(), *reply.failure);
  to.setNumber(reply.number);
  put_list(reply.extents, [&](kj::uint size) { return to.initExtents(size); });
  put(to.initChunk(), reply.chunk);
  auto& stats = reply.stats;
  put_list(std::array{stats.firings, stats.messages, stats.bytes_moved},
           [&](kj::uint size) { return to.initCounts(size); });
  put_counts(stats.alive_max, [&](kj::uint size) { return to.initAliveMax(size); });
  put_counts(stats.fired, [&](kj::uint size) { return to.initFired(size); });
}

Reply reply_of(wire::Reply::Reader from) {
  Reply reply{
      failure_of(from.getFailure()), from.getNumber(), extents_of(from.getExtents()), chunk_of(from.getChunk()), {}};
  auto counts = from.getCounts();
  if (counts.size() == 3)
    reply.stats.firings = counts[0], reply.stats.messages = counts[1], reply.stats.bytes_moved = counts[2];
  reply.stats.alive_max = counts_of(from.getAliveMax());
  reply.stats.fired = counts_of(from.getFired());
  return reply;
}

void put(wire::Event::Builder to, const RunEvent& event) {
  to.setKind(event.kind);
  if (event.failure) put(to.initFailure(), *event.failure);
  to.setText(text_in(event.text));
  to.setStep(event.step);
  to.setBatch(event.batch);
  put_chunks(event.chunks, [&](kj::uint size) { return to.initChunks(size); });
  to.setLast(event.last);
}

RunEvent event_of(wire::Event::Reader from) {
  if (from.getKind() >= RunEvent::kinds) wrong("no such event");
  return {RunEvent::Kind(from.getKind()),
          failure_of(from.getFailure()),
          string_of(from.getText()),
          from.getStep(),
          from.getBatch(),
          chunks_of(from.getChunks()),
          from.getLast()};
}

void put(wire::Request::Builder to, const Request& request) {
  to.setName(text_in(request.name));
  to.setRanks(request.ranks);
  to.setPlanBytes(request.plan_bytes);
  to.setPlanHash(request.plan_hash);
  auto plugins = to.initPlugins(kj::uint(request.plugins.size()));
  for (kj::uint i = 0; i < plugins.size(); ++i) {
    plugins[i].setPath(text_in(request.plugins[i].first));
    plugins[i].setHash(text_in(request.plugins[i].second));
  }
  to.setThreads(request.threads);
  to.setDelaySeed(request.delay_seed);
  to.setWatchdogMs(request.watchdog_ms);
}

Request request_of(wire::Request::Reader from) {
  Request request{string_of(from.getName()), from.getRanks(),     from.getPlanBytes(), from.getPlanHash(), {},
                  from.getThreads(),         from.getDelaySeed(), from.getWatchdogMs()};
  for (auto plugin : from.getPlugins())
    request.plugins.push_back({string_of(plugin.getPath()), string_of(plugin.getHash())});
  if (request.ranks < 1 || unsigned(request.ranks) > ranks_max) wrong("the number of ranks");
  if (request.plan_bytes > (uint64_t(1) << 30)) wrong("a plan of more than 1 GiB");
  if (request.threads < 0 || request.threads > 4096 || request.watchdog_ms < 0) wrong("the options");
  return request;
}

void put(wire::Setup::Builder to, const Setup& setup) {
  put(to.initRequest(), setup.request);
  to.setRun(setup.run);
  to.setKey({setup.key.data(), setup.key.size()});
  to.setProcess(setup.process);
  put_list(setup.process_of_rank, [&](kj::uint size) { return to.initProcessOfRank(size); });
  auto hosts = to.initHostOfProcess(kj::uint(setup.host_of_process.size()));
  for (kj::uint i = 0; i < hosts.size(); ++i) hosts.set(i, text_in(setup.host_of_process[i]));
  to.setWorkersOnHost(setup.workers_on_host);
  to.setSilenceMs(setup.silence_ms);
}

Setup setup_of(wire::Setup::Reader from) {
  Setup setup{.request = request_of(from.getRequest()), .run = from.getRun(), .process = from.getProcess()};
  auto key = from.getKey();
  if (key.size() != setup.key.size()) wrong("the run's key");
  std::copy(key.begin(), key.end(), setup.key.begin());
  setup.process_of_rank = list_of<int>(from.getProcessOfRank(), ranks_max);
  for (auto host : from.getHostOfProcess()) setup.host_of_process.push_back(string_of(host));
  setup.workers_on_host = std::max(1, from.getWorkersOnHost());
  setup.silence_ms = from.getSilenceMs();
  int processes = int(setup.host_of_process.size());
  bool good = int(setup.process_of_rank.size()) == setup.request.ranks && setup.process >= 0 &&
              setup.process < processes && setup.silence_ms > 0;
  for (int process : setup.process_of_rank) good = good && process >= 0 && process < processes;
  if (!good) wrong("who runs what");
  return setup;
}

void put(wire::Addresses::Builder to, const Addresses& addresses) {
  to.setShm(data_in(addresses.shm));
  to.setUcx(data_in(addresses.ucx));
}

Addresses addresses_of(wire::Addresses::Reader from) {
  Addresses addresses{bytes_in(from.getShm()), bytes_in(from.getUcx())};
  if (addresses.shm.size() > 4096 || addresses.ucx.size() > 4096) wrong("an address is too long");
  return addresses;
}

void put(wire::WorkerInfo::Builder to, const WorkerInfo& info) {
  to.setNumber(info.number);
  to.setHost(text_in(info.host));
  to.setPid(info.pid);
  to.setDevices(info.devices);
  to.setRuns(info.runs);
  to.setRanks(info.ranks);
}

WorkerInfo worker_of(wire::WorkerInfo::Reader from) {
  return {from.getNumber(), string_of(from.getHost()), from.getPid(), from.getDevices(), from.getRuns(),
          from.getRanks()};
}

kj::ArrayPtr<const kj::byte> bytes_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> vector_of(capnp::Data::Reader bytes) {
  auto* from = reinterpret_cast<const std::byte*>(bytes.begin());
  return {from, from + bytes.size()};
}

int64_t size_of(const std::vector<Chunk>& chunks) {
  int64_t bytes = 256;
  for (auto& chunk : chunks) bytes += int64_t(chunk.data.size()) + 64;
  return bytes;
}

std::string text_of(const kj::Exception& exception) {
  std::string text = exception.getDescription().cStr();
  constexpr std::string_view remote = "remote exception: ";
  return text.starts_with(remote) ? text.substr(remote.size()) : text;
}

}  // namespace sluice
