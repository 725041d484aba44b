// SPDX-License-Identifier: Apache-2.0
// Devices: memory, streams and events. `cpu` runs a launch at once on the caller's thread; `sim` runs it later on its
// own thread, in its own address space and after random delays, as a GPU would; `cuda` is one, and its launches run at
// once on the caller's thread and enqueue kernels; `null` computes nothing.
// Invariants: launches of one stream run in order; an event is complete when all launches before its record are.
// Device addresses are opaque to the host: only launches, copies and (cpu) the host may use them.
// Thread rule: a DeviceStream is used by one thread at a time; Event::done may be asked from any.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace sluice {

class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() const = 0;
  virtual void wait() = 0;  // blocks the host until done
};
using EventPtr = std::shared_ptr<Event>;  // null: complete

class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  // Enqueues work. `work` gets `base`: what to add to a device address to dereference it there (0 on cpu).
  // An exception in `work` is kept and rethrown by the next synchronize() or take_failure().
  // Where queue() is not null, `work` runs at once and must enqueue there all that it does.
  virtual void launch(std::function<void(std::ptrdiff_t base)> work) = 0;
  // What device kernels are enqueued on (Call::queue); null: kernels are the host's functions.
  virtual void* queue() { return nullptr; }
  virtual EventPtr record() = 0;           // null where everything launched is complete already
  virtual void wait(const EventPtr&) = 0;  // launches that follow run after the event; does not block the host
  virtual void synchronize() = 0;          // blocks the host
  // What failed since it was last asked: of this stream, or seen by a kernel of the device (a bad index, say).
  virtual std::exception_ptr take_failure() = 0;
  // Graph capture: launches between begin and end are recorded, not run; replay() enqueues them all.
  virtual void begin_capture() = 0;
  virtual int end_capture() = 0;  // the captured graph's id
  virtual void replay(int graph) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view kind() const = 0;
  virtual bool async() const = 0;            // launches may still run when launch() has returned
  virtual bool computes() const = 0;         // false: null
  virtual void* allocate(size_t bytes) = 0;  // 64-byte aligned, zeroed; throws Error when there is no memory
  virtual void release(void* memory) = 0;
  virtual void* allocate_pinned(size_t bytes) = 0;  // host memory that copies may use
  virtual void release_pinned(void* memory) = 0;
  virtual std::unique_ptr<DeviceStream> stream() = 0;
  // Whether launches and copies here may use the other device's memory (of the same kind, in this process).
  virtual bool reaches(const Device& other) const { return kind() == other.kind(); }
  // Asynchronous copies in stream order; host memory should be pinned.
  virtual void copy_in(DeviceStream&, void* device, const void* host, size_t bytes) = 0;
  virtual void copy_out(DeviceStream&, void* host, const void* device, size_t bytes) = 0;
  virtual void copy(DeviceStream&, void* to, const void* from, size_t bytes) = 0;
};

// Where host memory comes from, when not from the heap: an arena that other processes of the host map, say.
// Thread rule: any thread.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  virtual void* allocate(size_t bytes) = 0;  // 64-byte aligned, zeroed; throws Error when there is no memory
  virtual void release(void* memory) = 0;
};

struct DeviceOptions {
  int ordinal = 0;               // which of the machine's; counted round when there are fewer
  int threads = 1;               // cpu: the team
  HostMemory* memory = nullptr;  // of host memory: cpu's own, pinned memory of the others; null: the heap
  uint64_t seed = 0;             // sim: of the delays
  int delay_us_max = 50;         // sim
};
struct DeviceDef {
  std::string_view name, doc;
  std::unique_ptr<Device> (*make)(const DeviceOptions&);
  // How many this machine has; 0: none, or a build without it. Null: as many as are asked for.
  int (*count)() = nullptr;
};
std::span<const DeviceDef* const> builtin_devices();  // written by CMake from kernels/device/*.cc
inline int count_of(const DeviceDef& def) { return def.count ? def.count() : 1; }

// Throws Error(failed) that names `what` when what was enqueued last was refused.
void check_queue(void* queue, std::string_view what);

}  // namespace sluice
