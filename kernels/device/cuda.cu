// SPDX-License-Identifier: Apache-2.0
// An NVIDIA GPU as a device. Launches enqueue on the caller's thread, so there is no thread of ours here; an event is
// CUDA's, and streams wait for each other's on the device.
// Ranks of one process share their GPU's context, and read each other's memory where the GPUs reach each other.
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/device/cuda_queue.h"
#include "kernels/device/device.h"

namespace sluice {

void ok(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // an error that is no fault of the context does not show up again
  throw Error(Code::failed,
              std::string(what) + ": CUDA: " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

int count_cuda() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());  // no driver or no GPU
  return 0;
}

void check_cuda_queue(void*, std::string_view what) { ok(cudaGetLastError(), what); }

namespace {

using Work = std::function<void(std::ptrdiff_t)>;

constexpr size_t workspace_bytes = size_t(32) << 20;  // of a stream: what cuBLASLt asks for on large GPUs
constexpr size_t page = 4096;

class CudaEvent final : public Event {
 public:
  CudaEvent(int ordinal, cudaStream_t stream) {
    ok(cudaSetDevice(ordinal), "device cuda");
    ok(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "device cuda: an event");
    ok(cudaEventRecord(event_, stream), "device cuda: an event");
  }
  ~CudaEvent() override { static_cast<void>(cudaEventDestroy(event_)); }
  // After a fault every event counts as complete, so that nobody waits for ever; the stream reports the fault.
  bool done() const override { return cudaEventQuery(event_) != cudaErrorNotReady; }
  void wait() override { static_cast<void>(cudaEventSynchronize(event_)); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// What a device's streams share.
struct Shared {
  int ordinal = 0;
  CudaFault* fault = nullptr;

  void use() const { ok(cudaSetDevice(ordinal), "device cuda"); }
  // A fault that a kernel saw, once.
  std::exception_ptr take() {
    if (!*const_cast<volatile unsigned*>(&fault->ready)) return nullptr;
    std::atomic_thread_fence(std::memory_order_acquire);
    auto error = std::make_exception_ptr(Error(Code::index, fault_text(*fault)));
    fault->ready = 0;
    fault->taken = 0;
    return error;
  }
};

class CudaStream final : public DeviceStream {
 public:
  CudaStream(Shared& shared, int multiprocessors) : shared_(shared) {
    shared_.use();
    ok(cudaStreamCreateWithFlags(&queue_.stream, cudaStreamNonBlocking), "device cuda: a stream");
    queue_.ordinal = shared.ordinal;
    queue_.blocks_max = multiprocessors * 8;
    queue_.fault = shared.fault;
    void* memory = nullptr;
    ok(cudaMalloc(&memory, workspace_bytes), "device cuda: a stream's workspace");
    queue_.workspace = static_cast<std::byte*>(memory);
    queue_.workspace_bytes = workspace_bytes;
  }
  ~CudaStream() override {
    static_cast<void>(cudaSetDevice(shared_.ordinal));
    static_cast<void>(cudaStreamSynchronize(queue_.stream));
    for (auto graph : graphs_)
      if (graph) static_cast<void>(cudaGraphExecDestroy(graph));
    static_cast<void>(cudaFree(queue_.workspace));
    static_cast<void>(cudaStreamDestroy(queue_.stream));
  }

  // After a failure nothing is enqueued until it is taken: what follows would compute from garbage.
  void launch(Work work) override {
    if (failure_) return;
    try {
      shared_.use();
      work(0);
      ok(cudaPeekAtLastError(), "device cuda: a launch");
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  void* queue() override { return &queue_; }

  EventPtr record() override {
    check(!capturing_, "an event is recorded inside a graph capture");
    return std::make_shared<CudaEvent>(shared_.ordinal, queue_.stream);
  }
  void wait(const EventPtr& event) override {
    check(!capturing_, "an event is awaited inside a graph capture");
    if (!event) return;
    auto* mine = dynamic_cast<CudaEvent*>(event.get());
    if (!mine) return event->wait();  // of a device that is no GPU
    launch([&](std::ptrdiff_t) { ok(cudaStreamWaitEvent(queue_.stream, mine->get(), 0), "device cuda: a wait"); });
  }
  void synchronize() override {
    check(!capturing_, "a stream is synchronized inside a graph capture");
    launch([&](std::ptrdiff_t) { ok(cudaStreamSynchronize(queue_.stream), "device cuda"); });
    if (auto failure = take_failure()) std::rethrow_exception(failure);
  }
  std::exception_ptr take_failure() override {
    if (failure_) return std::exchange(failure_, nullptr);
    return shared_.take();
  }

  // Other threads may allocate and copy meanwhile.
  void begin_capture() override {
    check(!capturing_, "a graph capture begins inside another");
    capturing_ = true;
    launch([&](std::ptrdiff_t) {
      ok(cudaStreamBeginCapture(queue_.stream, cudaStreamCaptureModeThreadLocal), "device cuda: a capture");
    });
  }
  int end_capture() override {
    check(std::exchange(capturing_, false), "a graph capture ends that never began");
    cudaGraphExec_t exec = nullptr;
    cudaGraph_t graph = nullptr;
    cudaError_t ended = cudaStreamEndCapture(queue_.stream, &graph);  // always, or the stream stays in it
    launch([&](std::ptrdiff_t) {
      ok(ended, "device cuda: the end of a capture");
      ok(cudaGraphInstantiateWithFlags(&exec, graph, 0), "device cuda: a graph");
    });
    if (graph) static_cast<void>(cudaGraphDestroy(graph));
    static_cast<void>(cudaGetLastError());
    graphs_.push_back(exec);
    return int(graphs_.size()) - 1;
  }
  void replay(int graph) override {
    check(!capturing_, "a graph is replayed inside a graph capture");
    check(graph >= 0 && size_t(graph) < graphs_.size(), "no such graph");
    cudaGraphExec_t exec = graphs_[size_t(graph)];
    if (exec) launch([&](std::ptrdiff_t) { ok(cudaGraphLaunch(exec, queue_.stream), "device cuda: a graph"); });
  }

 private:
  Shared& shared_;
  CudaQueue queue_;
  bool capturing_ = false;
  std::vector<cudaGraphExec_t> graphs_;  // null: its capture failed
  std::exception_ptr failure_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const DeviceOptions& options) : host_(options.memory) {
    int count = count_cuda();
    if (count == 0) throw Error(Code::not_found, "device cuda: this machine has no GPU", {}, "use device cpu");
    shared_.ordinal = options.ordinal % count;
    name_ = "cuda " + std::to_string(shared_.ordinal);
    shared_.use();
    ok(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, shared_.ordinal), name_);
    ok(cudaDeviceGetAttribute(&pools_, cudaDevAttrMemoryPoolsSupported, shared_.ordinal), name_);
    ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), name_);
    void* fault = nullptr;
    ok(cudaHostAlloc(&fault, sizeof(CudaFault), cudaHostAllocPortable | cudaHostAllocMapped), name_);
    shared_.fault = std::construct_at(static_cast<CudaFault*>(fault));
    reach_peers(count);
  }
  ~CudaDevice() override {
    static_cast<void>(cudaSetDevice(shared_.ordinal));
    static_cast<void>(cudaStreamDestroy(stream_));
    static_cast<void>(cudaFreeHost(shared_.fault));
  }

  std::string_view kind() const override { return "cuda"; }
  bool async() const override { return true; }
  bool computes() const override { return true; }

  // In the order of the device's own stream, which has run when this returns: any stream may use it.
  void* allocate(size_t bytes) override {
    shared_.use();
    void* memory = nullptr;
    size_t size = std::max<size_t>(bytes, 64);
    bool absurd = size < bytes || size > SIZE_MAX / 2;  // the driver's own arithmetic would wrap
    if (absurd || (pools_ ? cudaMallocAsync(&memory, size, stream_) : cudaMalloc(&memory, size)) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      throw Error(Code::failed, no_memory("memory", bytes), {},
                  "use a smaller micro-batch, more devices, or a memory budget");
    }
    ok(cudaMemsetAsync(memory, 0, size, stream_), name_);
    ok(cudaStreamSynchronize(stream_), name_);
    return memory;
  }
  void release(void* memory) override {
    if (!memory) return;
    static_cast<void>(cudaSetDevice(shared_.ordinal));
    static_cast<void>(pools_ ? cudaFreeAsync(memory, stream_) : cudaFree(memory));
  }

  // Memory that the caller provides is pinned by whole pages of its own.
  void* allocate_pinned(size_t bytes) override {
    shared_.use();
    if (!host_) {
      void* memory = nullptr;
      ok(cudaHostAlloc(&memory, std::max<size_t>(bytes, 64), cudaHostAllocPortable), no_memory("pinned memory", bytes));
      return std::memset(memory, 0, std::max<size_t>(bytes, 64));
    }
    size_t rounded = (std::max<size_t>(bytes, 1) + page - 1) / page * page;
    void* whole = host_->allocate(rounded + page);
    void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(whole) + page - 1) / page * page);
    bool pinned = cudaHostRegister(aligned, rounded, cudaHostRegisterPortable) == cudaSuccess;
    if (!pinned) static_cast<void>(cudaGetLastError());  // copies of it are slower then
    std::lock_guard lock(mutex_);
    lent_[aligned] = {whole, pinned};
    return aligned;
  }
  void release_pinned(void* memory) override {
    if (!memory) return;
    static_cast<void>(cudaSetDevice(shared_.ordinal));
    if (!host_) return void(cudaFreeHost(memory));
    std::unique_lock lock(mutex_);
    auto [whole, pinned] = lent_.at(memory);
    lent_.erase(memory);
    lock.unlock();
    if (pinned) static_cast<void>(cudaHostUnregister(memory));
    host_->release(whole);
  }

  std::unique_ptr<DeviceStream> stream() override { return std::make_unique<CudaStream>(shared_, multiprocessors_); }
  bool reaches(const Device& other) const override {
    auto* peer = dynamic_cast<const CudaDevice*>(&other);
    return peer && (peer->shared_.ordinal == shared_.ordinal || reached_[size_t(peer->shared_.ordinal)]);
  }
  void copy_in(DeviceStream& stream, void* device, const void* host, size_t bytes) override {
    copy(stream, device, host, bytes);
  }
  void copy_out(DeviceStream& stream, void* host, const void* device, size_t bytes) override {
    copy(stream, host, device, bytes);
  }
  void copy(DeviceStream& stream, void* to, const void* from, size_t bytes) override {
    if (bytes == 0 || to == from) return;
    auto& queue = *static_cast<CudaQueue*>(stream.queue());
    stream.launch([&](std::ptrdiff_t) {
      ok(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue.stream), "device cuda: a copy");
    });
  }

 private:
  // This GPU's kernels get at the memory of those that it can reach, and they at its pool.
  void reach_peers(int count) {
    reached_.resize(size_t(count));
    for (int peer = 0; peer < count; ++peer) {
      int can = 0;
      if (peer == shared_.ordinal) continue;
      if (cudaDeviceCanAccessPeer(&can, shared_.ordinal, peer) != cudaSuccess || !can) continue;
      cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
      reached_[size_t(peer)] = enabled == cudaSuccess || enabled == cudaErrorPeerAccessAlreadyEnabled;
      static_cast<void>(cudaGetLastError());
      cudaMemPool_t pool = nullptr;
      if (!pools_ || cudaDeviceCanAccessPeer(&can, peer, shared_.ordinal) != cudaSuccess || !can) continue;
      ok(cudaDeviceGetDefaultMemPool(&pool, shared_.ordinal), name_);
      cudaMemAccessDesc access{};
      access.location.type = cudaMemLocationTypeDevice;
      access.location.id = peer;
      access.flags = cudaMemAccessFlagsProtReadWrite;
      ok(cudaMemPoolSetAccess(pool, &access, 1), name_);
    }
  }

  std::string no_memory(std::string_view kind, size_t bytes) const {
    return "device " + name_ + ": no " + std::string(kind) + " for " + std::to_string(bytes) + " bytes";
  }

  HostMemory* const host_;
  Shared shared_;
  std::string name_;
  int multiprocessors_ = 1, pools_ = 0;
  cudaStream_t stream_ = nullptr;  // of allocations
  std::vector<bool> reached_;      // by ordinal

  struct Lent {
    void* whole;
    bool pinned;
  };
  std::mutex mutex_;
  std::unordered_map<void*, Lent> lent_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<Device> make_cuda(const DeviceOptions& options) { return std::make_unique<CudaDevice>(options); }

}  // namespace sluice
