// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: synchronous. A launch runs on the caller's thread before launch() returns, so there is nothing
// to record or to wait for.
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/device/device.h"
#include "kernels/host_memory.h"

namespace sluice {
namespace {

using Work = std::function<void(std::ptrdiff_t)>;

class CpuStream final : public DeviceStream {
 public:
  void launch(Work work) override {
    if (capturing_) return captured_.back().push_back(std::move(work));
    run(work);
  }
  EventPtr record() override {
    check(!capturing_, "an event is recorded inside a graph capture");
    return nullptr;
  }
  void wait(const EventPtr& event) override {
    check(!capturing_, "an event is awaited inside a graph capture");
    if (event) event->wait();  // of another, asynchronous device
  }
  void synchronize() override {
    if (auto failure = take_failure()) std::rethrow_exception(failure);
  }
  std::exception_ptr take_failure() override { return std::exchange(failure_, nullptr); }

  void begin_capture() override {
    check(!capturing_, "a graph capture begins inside another");
    capturing_ = true;
    captured_.emplace_back();
  }
  int end_capture() override {
    check(std::exchange(capturing_, false), "a graph capture ends that never began");
    return int(captured_.size()) - 1;
  }
  void replay(int graph) override {
    check(graph >= 0 && size_t(graph) < captured_.size(), "no such graph");
    for (auto& work : captured_[size_t(graph)]) run(work);
  }

 private:
  // After a failure nothing runs until it is taken: what follows would compute from garbage.
  void run(const Work& work) {
    if (failure_) return;
    try {
      work(0);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  bool capturing_ = false;
  std::vector<std::vector<Work>> captured_;
  std::exception_ptr failure_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options) : memory_(options.memory) {}
  std::string_view kind() const override { return "cpu"; }
  bool async() const override { return false; }
  bool computes() const override { return true; }
  void* allocate(size_t bytes) override { return memory_ ? memory_->allocate(bytes) : allocate_host(bytes, kind()); }
  void release(void* memory) override { memory_ ? memory_->release(memory) : release_host(memory); }
  void* allocate_pinned(size_t bytes) override { return allocate(bytes); }
  void release_pinned(void* memory) override { release(memory); }
  std::unique_ptr<DeviceStream> stream() override { return std::make_unique<CpuStream>(); }
  void copy_in(DeviceStream& stream, void* device, const void* host, size_t bytes) override {
    copy(stream, device, host, bytes);
  }
  void copy_out(DeviceStream& stream, void* host, const void* device, size_t bytes) override {
    copy(stream, host, device, bytes);
  }
  void copy(DeviceStream& stream, void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    stream.launch([=](std::ptrdiff_t) { std::memmove(to, from, bytes); });
  }

 private:
  HostMemory* const memory_;
};

}  // namespace

namespace devices {
extern constinit const DeviceDef cpu{
    .name = "cpu",
    .doc = "The host's processor: every launch has run when it returns.",
    .make = [](const DeviceOptions& options) -> std::unique_ptr<Device> {
      return std::make_unique<CpuDevice>(options);
    },
};
}  // namespace devices
}  // namespace sluice
