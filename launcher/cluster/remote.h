// SPDX-License-Identifier: Apache-2.0
// The Runtime of a run whose floors are elsewhere: cuts what the client gives into messages, and puts together what
// comes back.
// Thread rule: as each class says.
#pragma once
#include <deque>

#include "launcher/cluster/messages.h"

namespace sluice {

// What comes of a run while its client is elsewhere.
// Thread rule: any thread.
class Inbox {
 public:
  explicit Inbox(const Plan& plan);
  void push(RunEvent event);
  void fail(const Error& error);  // the first stands
  std::optional<Error> failure() const;
  std::optional<StepResult> wait(std::chrono::milliseconds timeout);  // throws the failure
  std::vector<std::string> take_notices();

 private:
  void add(RunEvent& event);

  std::map<std::string, uint64_t> limits_;  // bytes of each output
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StepResult> results_;
  Assembly assembly_;  // of the step that is coming in
  std::optional<Error> failure_;
  std::vector<std::string> notices_;
};

// How commands get to the floors. The destructor ends the run, in bounded time.
class RunLine {
 public:
  using Replies = std::vector<Reply>;
  virtual ~RunLine() = default;
  // To one process, or to all (-1) but one. Blocks only while too much is under way. `done` is called once, on any
  // thread; a lost connection is a failure among the replies.
  virtual void send(int to, int but, Command command, std::function<void(Replies)> done) = 0;
};

struct RemoteRun {
  std::unique_ptr<RunLine> line;
  std::shared_ptr<Inbox> inbox;
  std::vector<int> process_of_rank;
  int64_t rows = 0;
};
std::unique_ptr<Runtime> make_remote(const Plan& plan, RemoteRun run);

}  // namespace sluice
