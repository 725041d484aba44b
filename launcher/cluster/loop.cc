// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/loop.h"

#include <kj/exception.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"

namespace sluice {
namespace {

// What KJ would print, a lost connection say, is ours to tell; and it starts programs to print a stack.
class Quiet : public kj::ExceptionCallback {
 public:
  void logMessage(kj::LogSeverity, const char*, int, int, kj::String&&) override {}
  StackTraceMode stackTraceMode() override { return StackTraceMode::NONE; }
};

}  // namespace

Loop::Loop(const Make& make) : bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (bell_.get() < 0) throw Error(Code::failed, "there is no descriptor left for a connection");
  std::mutex mutex;
  std::condition_variable changed;
  bool ready = false;
  std::exception_ptr failure;
  thread_ = std::thread([&, this] {
    run(make, [&](std::exception_ptr why) {
      std::lock_guard lock(mutex);
      ready = true, failure = why;
      changed.notify_one();
    });
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ready; });
  if (!failure) return;
  thread_.join();
  std::rethrow_exception(failure);
}

void Loop::run(const Make& make, const std::function<void(std::exception_ptr)>& made) {
  Quiet quiet;
  auto io = kj::setupAsyncIo();
  kj::UnixEventPort::FdObserver observer(io.unixEventPort, bell_.get(), kj::UnixEventPort::FdObserver::OBSERVE_READ);
  auto end = kj::newPromiseAndFulfiller<void>();
  end_ = kj::mv(end.fulfiller);
  std::shared_ptr<void> owned;
  try {
    owned = make(io);
  } catch (...) {
    return made(std::current_exception());
  }
  made(nullptr);  // from here on nothing of the constructor's may be used
  auto tasks = take_tasks(observer).eagerlyEvaluate(
      [](kj::Exception&& why) { broken_invariant(why.getDescription().cStr(), std::source_location::current()); });
  end.promise.wait(io.waitScope);
  if (last_) last_().catch_([](kj::Exception&&) {}).wait(io.waitScope);
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  owned.reset();
  waiting_.clear();
  end_ = nullptr;
}

kj::Promise<void> Loop::take_tasks(kj::UnixEventPort::FdObserver& observer) {
  // Rung before the look, so that whoever rings while we run is heard at the next turn.
  uint64_t rings;
  [[maybe_unused]] auto size = read(bell_.get(), &rings, sizeof rings);
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (auto& task : tasks) std::exchange(task, nullptr)();
  return observer.whenBecomesReadable().then([this, &observer] { return take_tasks(observer); });
}

void Loop::post(Task task) {
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  tasks_.push_back(std::move(task));
  uint64_t one = 1;
  if (tasks_.size() == 1) [[maybe_unused]]
    auto size = write(bell_.get(), &one, sizeof one);
}

void Loop::stop(std::function<kj::Promise<void>()> last) {
  if (!thread_.joinable()) return;
  post([this, last = std::move(last)] {
    last_ = last;
    end_->fulfill();
  });
  thread_.join();
}

}  // namespace sluice
