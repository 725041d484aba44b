// SPDX-License-Identifier: Apache-2.0
// A simulated accelerator: each stream is a thread that runs its launches later, in order and after random delays;
// memory has an address space of its own. All host logic that must hold on a GPU is tested on it.
//
// Addresses: a device address is the real one plus a tag in its top byte. On x86-64 and arm64 that is no address a
// program may touch, so a host access faults at once; `base` takes the tag off inside a launch.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "kernels/device/device.h"
#include "kernels/host_memory.h"

namespace sluice {
namespace {

using Work = std::function<void(std::ptrdiff_t)>;
using Graph = std::vector<Work>;
using GraphPtr = std::shared_ptr<const Graph>;

constexpr uintptr_t address_tag = uintptr_t(0x51) << 56;
constexpr std::ptrdiff_t address_base = -std::ptrdiff_t(address_tag);

void* at_base(const void* device, std::ptrdiff_t base) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(device) + uintptr_t(base));
}

class SimEvent final : public Event {
 public:
  bool done() const override {
    std::lock_guard lock(mutex_);
    return done_;
  }
  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
  }
  void complete() {
    std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

struct Await {
  EventPtr event;
};
struct Complete {
  std::shared_ptr<SimEvent> event;
};
using Item = std::variant<Work, GraphPtr, Await, Complete>;

class SimStream final : public DeviceStream {
 public:
  SimStream(uint64_t seed, uint64_t number, int delay_us_max)
      : key_{seed, number, 0}, delay_us_max_(delay_us_max), worker_([this] { work(); }) {}
  // Everything enqueued still runs (without delays): memory that it uses must outlive the stream.
  ~SimStream() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    worker_.join();
  }

  void launch(Work work) override {
    if (capture_) return capture_->push_back(std::move(work));
    push(std::move(work));
  }
  EventPtr record() override {
    check(!capture_, "an event is recorded inside a graph capture");
    auto event = std::make_shared<SimEvent>();
    push(Complete{event});
    return event;
  }
  void wait(const EventPtr& event) override {
    check(!capture_, "an event is awaited inside a graph capture");
    if (event) push(Await{event});
  }
  void synchronize() override {
    check(!capture_, "a stream is synchronized inside a graph capture");
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return queue_.empty() && !busy_; });
    if (auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
  }
  std::exception_ptr take_failure() override {
    std::lock_guard lock(mutex_);
    return std::exchange(failure_, nullptr);
  }

  void begin_capture() override {
    check(!capture_, "a graph capture begins inside another");
    capture_ = std::make_shared<Graph>();
  }
  int end_capture() override {
    check(capture_ != nullptr, "a graph capture ends that never began");
    graphs_.push_back(std::exchange(capture_, nullptr));
    return int(graphs_.size()) - 1;
  }
  void replay(int graph) override {
    check(!capture_, "a graph is replayed inside a graph capture");
    check(graph >= 0 && size_t(graph) < graphs_.size(), "no such graph");
    push(graphs_[size_t(graph)]);
  }

 private:
  void push(Item item) {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
    changed_.notify_all();
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      busy_ = true;
      {
        Item item = std::move(queue_.front());
        queue_.pop_front();
        bool delayed = !stopping_;
        lock.unlock();
        run(item, delayed);
      }  // what the item holds is gone before synchronize() returns
      lock.lock();
      busy_ = false;
      if (queue_.empty()) idle_.notify_all();
    }
  }

  void run(Item& item, bool delayed) {
    if (auto* complete = std::get_if<Complete>(&item)) return complete->event->complete();
    if (auto* await = std::get_if<Await>(&item)) return await->event->wait();
    if (delayed) delay();
    if (auto* work = std::get_if<Work>(&item)) return run_one(*work);
    for (auto& work : *std::get<GraphPtr>(item)) run_one(work);
  }

  // After a failure nothing runs until it is taken, as on a GPU; events still complete, so nobody waits for ever.
  void run_one(const Work& work) {
    {
      std::lock_guard lock(mutex_);
      if (failure_) return;
    }
    try {
      work(address_base);
    } catch (...) {
      std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
  }

  // Half of the launches start at once, the others after up to delay_us_max_: orders change from seed to seed.
  void delay() {
    if (delay_us_max_ <= 0) return;
    uint32_t draw = key_.bits(launches_++);
    if (draw & 1) std::this_thread::sleep_for(std::chrono::microseconds((draw >> 1) % uint32_t(delay_us_max_ + 1)));
  }

  const RandomKey key_;
  const int delay_us_max_;
  uint64_t launches_ = 0;           // the worker's
  std::shared_ptr<Graph> capture_;  // the user's thread's
  std::vector<GraphPtr> graphs_;    // the user's thread's

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_, idle_;
  std::deque<Item> queue_;
  bool busy_ = false, stopping_ = false;
  std::exception_ptr failure_;

  std::thread worker_;  // last: it starts when all else is there
};

class SimDevice final : public Device {
 public:
  explicit SimDevice(const DeviceOptions& options) : options_(options) {}
  std::string_view kind() const override { return "sim"; }
  bool async() const override { return true; }
  bool computes() const override { return true; }
  void* allocate(size_t bytes) override { return at_base(allocate_host(bytes, kind()), std::ptrdiff_t(address_tag)); }
  void release(void* memory) override {
    if (memory) release_host(at_base(memory, address_base));
  }
  void* allocate_pinned(size_t bytes) override {
    return options_.memory ? options_.memory->allocate(bytes) : allocate_host(bytes, kind());
  }
  void release_pinned(void* memory) override {
    options_.memory ? options_.memory->release(memory) : release_host(memory);
  }
  std::unique_ptr<DeviceStream> stream() override {
    std::lock_guard lock(mutex_);
    return std::make_unique<SimStream>(options_.seed, streams_++, options_.delay_us_max);
  }
  void copy_in(DeviceStream& stream, void* device, const void* host, size_t bytes) override {
    if (bytes == 0) return;
    stream.launch([=](std::ptrdiff_t base) { std::memcpy(at_base(device, base), host, bytes); });
  }
  void copy_out(DeviceStream& stream, void* host, const void* device, size_t bytes) override {
    if (bytes == 0) return;
    stream.launch([=](std::ptrdiff_t base) { std::memcpy(host, at_base(device, base), bytes); });
  }
  void copy(DeviceStream& stream, void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    stream.launch([=](std::ptrdiff_t base) { std::memmove(at_base(to, base), at_base(from, base), bytes); });
  }

 private:
  const DeviceOptions options_;
  std::mutex mutex_;
  uint64_t streams_ = 0;
};

}  // namespace

namespace devices {
extern constinit const DeviceDef sim{
    .name = "sim",
    .doc = "A simulated accelerator: asynchronous, with its own address space and random delays.",
    .make = [](const DeviceOptions& options) -> std::unique_ptr<Device> {
      return std::make_unique<SimDevice>(options);
    },
};
}  // namespace devices
}  // namespace sluice
