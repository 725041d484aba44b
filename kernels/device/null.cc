// SPDX-License-Identifier: Apache-2.0
// A device that computes nothing and holds no memory: plans for thousands of devices run on a laptop. Addresses come
// from a counter and must never be dereferenced; copies move nothing.
#include <fmt/format.h>

#include <atomic>

#include "base/error.h"
#include "kernels/device/device.h"
#include "kernels/host_memory.h"

namespace sluice {
namespace {

class NullStream final : public DeviceStream {
 public:
  void launch(std::function<void(std::ptrdiff_t)>) override {}
  EventPtr record() override {
    check(!capturing_, "an event is recorded inside a graph capture");
    return nullptr;
  }
  void wait(const EventPtr& event) override {
    check(!capturing_, "an event is awaited inside a graph capture");
    if (event) event->wait();  // of another, asynchronous device
  }
  void synchronize() override {}
  std::exception_ptr take_failure() override { return nullptr; }
  void begin_capture() override {
    check(!capturing_, "a graph capture begins inside another");
    capturing_ = true;
  }
  int end_capture() override {
    check(capturing_, "a graph capture ends that never began");
    capturing_ = false;
    return graphs_++;
  }
  void replay(int graph) override { check(graph >= 0 && graph < graphs_, "no such graph"); }

 private:
  bool capturing_ = false;
  int graphs_ = 0;
};

class NullDevice final : public Device {
 public:
  std::string_view kind() const override { return "null"; }
  bool async() const override { return false; }
  bool computes() const override { return false; }
  void* allocate(size_t bytes) override {
    // The limit is the user address space, so that sums over the allocations of a plan cannot wrap.
    if (bytes > address_limit) throw Error(Code::failed, fmt::format("device null: no address for {} bytes", bytes));
    uintptr_t address = next_.fetch_add((bytes + 64) / 64 * 64);
    return reinterpret_cast<void*>(address);
  }
  void release(void*) override {}
  void* allocate_pinned(size_t bytes) override { return allocate_host(bytes, kind()); }  // the host writes to it
  void release_pinned(void* memory) override { release_host(memory); }
  std::unique_ptr<DeviceStream> stream() override { return std::make_unique<NullStream>(); }
  void copy_in(DeviceStream&, void*, const void*, size_t) override {}
  void copy_out(DeviceStream&, void*, const void*, size_t) override {}
  void copy(DeviceStream&, void*, const void*, size_t) override {}

 private:
  static constexpr size_t address_limit = size_t(1) << 47;
  std::atomic<uintptr_t> next_{uintptr_t(0x4E) << 56};  // not canonical on x86-64: a dereference faults
};

}  // namespace

namespace devices {
extern constinit const DeviceDef null{
    .name = "null",
    .doc = "Computes nothing and allocates nothing: for plans of devices that are not there.",
    .make = [](const DeviceOptions&) -> std::unique_ptr<Device> { return std::make_unique<NullDevice>(); },
};
}  // namespace devices
}  // namespace sluice
