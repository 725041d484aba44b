// SPDX-License-Identifier: Apache-2.0
// What travels between a client, the coordinator and the floors of a run, as plain values: who makes or takes them
// knows no Cap'n Proto (rpc.h turns them into ../wire.capnp and back). Invariant: what is larger than a chunk travels
// as chunks in order; the first declares the whole, and who assembles them knows from the plan how large that may be.
// Thread rule: values.
#pragma once
#include <condition_variable>
#include <mutex>

#include "launcher/cluster/cluster.h"

namespace sluice {

inline constexpr size_t chunk_bytes_max = 1 << 20;
inline constexpr int64_t flow_bytes_max = 8 << 20;  // under way on a connection, before who sends more waits

// A piece of a named array; the whole has `total` bytes.
struct Chunk {
  std::string name;
  DType dtype = DType::float32;
  std::vector<int64_t> dims;
  uint64_t total = 0, offset = 0;
  std::vector<std::byte> data;
};

// An error, and whether it is only the consequence of another, whose own line says more: a transport that lost a
// process, or a call to a floor that has failed.
struct Failure {
  Error error;
  int lost_process = -1;
  bool consequence = false;
};

struct Command {
  enum Kind : uint8_t {
    set_part,     // chunks[0] of a part; `name`, `ranks`: whose equal part it is; `last`: then it is set
    part,         // `name`, ranks[0], number: the offset; answer: a chunk
    announce,     //
    set_step,     // number
    grant,        // number
    feed,         // chunks of a batch; `last`: then it is fed; answer: its extents
    feed_extent,  // extents
    drain,        // results of all steps are out before the answer is
    progress,     // answer: number
    stats,        //
    kinds
  };
  Kind kind = announce;
  std::string name;
  std::vector<int> ranks;
  int64_t number = 0;
  Extents extents{};
  std::vector<Chunk> chunks;
  bool last = false;
};

struct Reply {
  std::optional<Failure> failure;
  int64_t number = 0;
  Extents extents{};
  Chunk chunk;
  RunStats stats;
};

struct RunEvent {
  enum Kind : uint8_t { result, failed, notice, kinds };
  Kind kind = result;
  std::optional<Failure> failure;
  std::string text;  // notice: for the user to read
  int64_t step = 0, batch = 0;
  std::vector<Chunk> chunks;  // result: outputs
  bool last = false;          // result: the step is complete
};

struct Request {
  std::string name;
  int ranks = 0;
  uint64_t plan_bytes = 0, plan_hash = 0;
  std::vector<std::pair<std::string, std::string>> plugins;
  int threads = 0;  // 0: the worker chooses
  uint64_t delay_seed = 0;
  int64_t watchdog_ms = 0;
};

struct Setup {
  Request request;
  uint64_t run = 0;
  std::array<uint8_t, 32> key{};
  int process = 0;
  std::vector<int> process_of_rank;
  std::vector<std::string> host_of_process;
  int workers_on_host = 1;
  int silence_ms = 6000;
};

struct Addresses {
  std::string shm, ucx;  // "": not used
};

// Cuts arrays into messages and hands each to `send`, with `last` for the final one.
struct Named {
  std::string name;
  const HostArray* array = nullptr;
};
void cut(const std::vector<Named>& arrays, const std::function<void(std::vector<Chunk>, bool last)>& send);

// Puts chunks together again. `limit` says how large the array of a name may be: nothing for one that is not expected.
class Assembly {
 public:
  using Limit = std::function<std::optional<uint64_t>(const std::string& name)>;
  void add(Chunk chunk, const Limit& limit);    // throws Error: not expected, too large, out of order
  std::map<std::string, HostArray> take_all();  // throws Error: one is not complete

 private:
  struct Part {
    HostArray array;
    uint64_t total = 0;
  };
  std::map<std::string, Part> parts_;
};

// How many bytes are under way on a connection. Who sends waits here, so that a slow peer costs no memory.
// Thread rule: any thread.
class Flow {
 public:
  bool take(int64_t bytes);  // blocks; false: closed
  void give(int64_t bytes);
  void close();
  bool closed() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t under_way_ = 0;
  bool closed_ = false;
};

}  // namespace sluice
