// SPDX-License-Identifier: Apache-2.0
// A worker's part of a run: the floor of its ranks, with the transports to the other processes, on a thread of its own.
//
//   plan bytes -> prepare (decode, transports) -> connect (transports, floor) -> commands; end at any time
//
// While no command waits, the thread hands what the floor finishes to the client (only the process of rank 0 does;
// others drop theirs) and tells the first failure.
// Invariants: `tell` and answers come from this thread; after a failure every command is answered with it; the
// destructor returns when the thread has ended.
// Thread rule: any thread.
#pragma once
#include <thread>

#include "launcher/cluster/messages.h"

namespace sluice {

class Share {
 public:
  using Tell = std::function<void(RunEvent)>;  // may block while too much is under way
  using Failed = std::optional<Failure>;

  Share(Setup setup, std::string listen, Tell tell);
  ~Share();
  Share(const Share&) = delete;

  void add_plan(std::vector<std::byte> bytes);
  void prepare(std::function<void(Failed, Addresses)> done);
  void connect(std::vector<Addresses> all, std::function<void(Failed, int64_t rows)> done);
  void run(Command command, std::function<void(Reply)> done);
  // Stops the floor where it is. `done` is called when floor and transports are gone.
  void end(std::function<void()> done);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
