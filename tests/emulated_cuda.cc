// SPDX-License-Identifier: Apache-2.0
// The device `cuda` of a test program whose kernels are compiled for the host (kernels/device/cuda_emulation.h): it
// takes the place of kernels/device/cuda.cu. Memory is the host's, streams are those of `sim`.
#include <atomic>

#include "kernels/device/cuda_queue.h"
#include "kernels/host_memory.h"

namespace sluice {
namespace {

const DeviceDef& sim() {
  for (auto* def : builtin_devices())
    if (def->name == "sim") return *def;
  throw Error(Code::not_found, "there is no device 'sim'");
}

class EmulatedStream final : public DeviceStream {
 public:
  EmulatedStream(std::unique_ptr<DeviceStream> stream, CudaFault* fault) : stream_(std::move(stream)) {
    workspace_.resize(size_t(1) << 13);  // what reductions need
    queue_.stream = stream_.get();
    queue_.blocks_max = 3;  // so that kernels loop
    queue_.workspace = reinterpret_cast<std::byte*>(workspace_.data());
    queue_.workspace_bytes = workspace_.size() * 8;
    queue_.fault = fault;
  }
  ~EmulatedStream() override { stream_.reset(); }  // before what its work uses
  void launch(std::function<void(std::ptrdiff_t)> work) override {
    if (failure_) return;
    try {
      work(0);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  void* queue() override { return &queue_; }
  EventPtr record() override { return stream_->record(); }
  void wait(const EventPtr& event) override { stream_->wait(event); }
  void synchronize() override {
    stream_->synchronize();
    if (auto failure = take_failure()) std::rethrow_exception(failure);
  }
  std::exception_ptr take_failure() override {
    if (failure_) return std::exchange(failure_, nullptr);
    if (!__atomic_exchange_n(&queue_.fault->ready, 0, __ATOMIC_SEQ_CST)) return stream_->take_failure();
    CudaFault fault = *queue_.fault;
    __atomic_store_n(&queue_.fault->taken, 0, __ATOMIC_SEQ_CST);
    return std::make_exception_ptr(Error(Code::index, fault_text(fault)));
  }
  void begin_capture() override { stream_->begin_capture(); }
  int end_capture() override { return stream_->end_capture(); }
  void replay(int graph) override { stream_->replay(graph); }

 private:
  std::unique_ptr<DeviceStream> stream_;
  std::vector<uint64_t> workspace_;
  CudaQueue queue_;
  std::exception_ptr failure_;
};

class EmulatedCuda final : public Device {
 public:
  explicit EmulatedCuda(const DeviceOptions& options) : sim_(sim().make(options)) {}
  std::string_view kind() const override { return "cuda"; }
  bool async() const override { return true; }
  bool computes() const override { return true; }
  void* allocate(size_t bytes) override { return allocate_host(bytes, kind()); }
  void release(void* memory) override { release_host(memory); }
  void* allocate_pinned(size_t bytes) override { return sim_->allocate_pinned(bytes); }
  void release_pinned(void* memory) override { sim_->release_pinned(memory); }
  std::unique_ptr<DeviceStream> stream() override { return std::make_unique<EmulatedStream>(sim_->stream(), &fault_); }
  void copy_in(DeviceStream& stream, void* device, const void* host, size_t bytes) override {
    copy(stream, device, host, bytes);
  }
  void copy_out(DeviceStream& stream, void* host, const void* device, size_t bytes) override {
    copy(stream, host, device, bytes);
  }
  void copy(DeviceStream& stream, void* to, const void* from, size_t bytes) override {
    if (bytes > 0) cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<CudaQueue*>(stream.queue())->stream);
  }

 private:
  std::unique_ptr<Device> sim_;
  CudaFault fault_;
};

}  // namespace

void ok(cudaError_t status, std::string_view) { check(status == cudaSuccess, "emulated calls succeed"); }
int count_cuda() { return 1; }
std::unique_ptr<Device> make_cuda(const DeviceOptions& options) { return std::make_unique<EmulatedCuda>(options); }
void check_cuda_queue(void*, std::string_view) {}

}  // namespace sluice
