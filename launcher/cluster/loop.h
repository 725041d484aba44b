// SPDX-License-Identifier: Apache-2.0
// A thread with a KJ event loop, which others reach through one queue of our own.
// Thread rule: post and stop from any thread; everything of KJ and Cap'n Proto lives and dies on the loop's thread.
#pragma once
#include <kj/async-io.h>
#include <kj/async-unix.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "launcher/process.h"

namespace sluice {

class Loop {
 public:
  using Task = std::function<void()>;
  // `make` runs on the thread, before any task; what it returns dies there, after the last one.
  using Make = std::function<std::shared_ptr<void>(kj::AsyncIoContext&)>;
  // Throws what `make` throws.
  explicit Loop(const Make& make);
  ~Loop() { stop(); }
  Loop(const Loop&) = delete;

  void post(Task task);  // after stop(): forgotten
  // On the loop's thread: a promise of what `start` is to answer later, once, from any thread.
  template <class T>
  kj::Promise<std::shared_ptr<T>> answer(const std::function<void(std::function<void(T)> done)>& start);
  // Runs `last` on the thread, waits for its promise, which has to come in bounded time, and ends the thread. Tasks are
  // taken until then.
  void stop(std::function<kj::Promise<void>()> last = {});

 private:
  void run(const Make& make, const std::function<void(std::exception_ptr)>& made);
  kj::Promise<void> take_tasks(kj::UnixEventPort::FdObserver& observer);

  Handle bell_;  // readable: there are tasks
  std::mutex mutex_;
  std::vector<Task> tasks_;                  // guarded by mutex_
  bool stopped_ = false;                     // guarded by mutex_
  std::function<kj::Promise<void>()> last_;  // of the loop's thread, as is the next
  kj::Own<kj::PromiseFulfiller<void>> end_;
  uint64_t asked_ = 0;
  std::map<uint64_t, std::shared_ptr<void>> waiting_;  // fulfillers: they never leave the thread
  std::thread thread_;
};

template <class T>
kj::Promise<std::shared_ptr<T>> Loop::answer(const std::function<void(std::function<void(T)> done)>& start) {
  using Fulfiller = kj::Own<kj::PromiseFulfiller<std::shared_ptr<T>>>;
  auto pair = kj::newPromiseAndFulfiller<std::shared_ptr<T>>();
  uint64_t id = ++asked_;
  waiting_[id] = std::make_shared<Fulfiller>(kj::mv(pair.fulfiller));
  start([this, id](T value) {
    post([this, id, shared = std::make_shared<T>(std::move(value))] {
      auto found = waiting_.extract(id);
      if (found) (*std::static_pointer_cast<Fulfiller>(found.mapped()))->fulfill(kj::cp(shared));
    });
  });
  return kj::mv(pair.promise);
}

}  // namespace sluice
