// SPDX-License-Identifier: Apache-2.0
// What all parts of one floor share: the plan, the step's facts, results, the first failure, and who wakes streams.
// Thread rule: as each member says.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>

#include "actors/parts.h"

namespace sluice {

// The steps that the client asked for: how many rows each has, and what was fed for it.
// Thread rule: any thread.
class Steps {
 public:
  int64_t rows = 0;   // of the data source; 0: none. Set before the start
  int64_t batch = 0;  // the plan's global batch
  bool feeds = false;
  int64_t takers = 1;  // gated actors: a fed batch goes when all have taken it

  void push(std::shared_ptr<const Batch> fed, const Extents& extent);
  struct Facts {
    Extents extent;
    std::shared_ptr<const Batch> batch;  // null without feeds
  };
  // Of step number `index` since the start (`step` in the client's numbering); each gated actor asks once.
  Facts begin(int64_t step, int64_t index);
  Extents source_extents(int64_t step) const;  // by the data source alone

 private:
  struct Fed {
    std::shared_ptr<const Batch> batch;
    Extents extent;
    int64_t begun = 0;
  };
  std::mutex mutex_;
  std::deque<Fed> fed_;
  int64_t first_ = 0;  // index of fed_.front()
};

// Outputs on their way to the client, a step at a time and in order.
// Thread rule: any thread.
class Results {
 public:
  int64_t parts_a_step = 0;  // firings of all sinks in a step; 0: there are none

  // Copies a local part (row-major, on the host) to its place in the output.
  void add(const Firing& firing, const std::string& name, const LogicalType& type, const Window& window, const Box& box,
           const void* data);
  bool finish_part(const Firing& firing);  // true: a step became complete
  std::optional<StepResult> take();

 private:
  struct Partial {
    StepResult result;
    int64_t parts = 0;
  };
  std::mutex mutex_;
  std::map<int64_t, Partial> partial_;  // by index since the start
  int64_t next_ = 0;
};

// Where a failure is decided and streams get their threads: CAF's workers, or the client's thread.
class Host {
 public:
  virtual ~Host() = default;
  virtual void wake(Stream& stream) = 0;  // any thread; the stream is not scheduled yet
  virtual void report_failure() = 0;      // any thread: World::failures has a new one
  virtual void start(std::vector<Stream*> streams) = 0;
  virtual void stop() = 0;                       // afterwards no stream runs any more
  virtual bool drives() const { return false; }  // the client's thread has to drive
  virtual bool drive_one() { return false; }     // runs one turn; false: nothing is scheduled
};
struct World;
std::unique_ptr<Host> make_inline_host(World& world);
std::unique_ptr<Host> make_caf_host(World& world, int workers, bool spin);

class Poller;

struct World {
  const Plan& plan;
  const FloorOptions& options;
  Steps steps;
  Results results;
  std::unique_ptr<Transport> inproc;  // between ranks of this process
  Neighbours neighbours;              // and to the others
  std::vector<Transport*> polled;     // those to others, each once
  Host* host = nullptr;
  Poller* poller = nullptr;
  bool async = false;    // of the devices
  bool computes = true;  // of the devices
  std::atomic<bool> stopped{false};
  std::atomic<int64_t> step_base{0};                // changed only while drained
  alignas(64) std::atomic<int64_t> bytes_moved{0};  // written by many: on a cache line of its own

  // The client's wait. Streams look at `waiting` when they rest, so a client that waits for a result costs them
  // nothing.
  enum Wait : int { nobody, result, idle };
  alignas(64) mutable std::mutex mutex;
  std::condition_variable changed;
  int64_t changes = 0;               // guarded by mutex
  std::atomic<int> waiting{nobody};  // what the client waits for
  bool interrupted = false;          // guarded by mutex: the next wait ends early
  std::atomic<int64_t> opened{0};    // steps that the gates were opened for
  std::deque<Failure> failures;      // guarded by mutex: not yet seen by the supervisor
  std::optional<Error> failure;      // guarded by mutex: the first

  // The transport between two ranks of which one at least is here.
  Transport& between(int from_rank, int to_rank) const;
  bool poll_transports();  // for workers that spin: true: something arrived
  void spin_transports(bool begins);
  void tell_client();
  void fail(Failure failed);  // any thread
  void decide_failure();      // the supervisor: takes what is in `failures`
};

// An exception as a failure that names what ran, the rank, the step and the user's line.
Failure failure_of(std::exception_ptr exception, const Actor& actor, const std::string& what, const Place& place,
                   int64_t step);

}  // namespace sluice
