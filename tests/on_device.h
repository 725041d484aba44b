// SPDX-License-Identifier: Apache-2.0
// For tests: ops run on a device too, and compared with the CPU. The device is SLUICE_TEST_DEVICE, else `cuda` where
// this machine has one; else there is none.
// Thread rule: one thread.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/op.h"

namespace sluice::test {

inline Device* device_under_test() {
  static const std::unique_ptr<Device> device = []() -> std::unique_ptr<Device> {
    const char* wanted = std::getenv("SLUICE_TEST_DEVICE");
    for (auto* def : builtin_devices())
      if (wanted ? def->name == wanted : def->name == "cuda" && count_of(*def) > 0)
        return def->make({.delay_us_max = 0});
    return nullptr;
  }();
  return device.get();
}

inline DeviceStream& stream_under_test() {
  static const std::unique_ptr<DeviceStream> stream = device_under_test()->stream();
  return *stream;
}

// Asynchronous devices of this machine, as values of [device] kind.
inline std::vector<std::string> async_devices() {
  std::vector<std::string> kinds;
  for (auto* def : builtin_devices())
    if ((def->name == "sim" || def->name == "cuda") && count_of(*def) > 0) kinds.emplace_back(def->name);
  return kinds;
}

// The memory of a call's views on a device: views that share memory share it there.
class DeviceCall {
 public:
  explicit DeviceCall(const Call& call) : device_(*device_under_test()), stream_(stream_under_test()), call_(call) {
    for (auto& view : call.in) in_.push_back(copied(view));
    for (auto& view : call.out) out_.push_back(copied(view));
    host_out_.assign(call.out.begin(), call.out.end());
    call_.workspace = nullptr;
  }
  ~DeviceCall() {
    for (auto& [host, memory] : memory_) device_.release(memory);
  }
  DeviceCall(const DeviceCall&) = delete;

  void run(const OpDef& op, int micro_batch = 0) {
    stream_.launch([&](std::ptrdiff_t base) {
      for (auto* views : {&in_, &out_})
        for (auto& view : *views) view.data = static_cast<std::byte*>(view.data) + base;
      call_.in = in_;
      call_.out = out_;
      call_.micro_batch = micro_batch;
      call_.queue = stream_.queue();
      run_op(op, call_);
      for (auto* views : {&in_, &out_})
        for (auto& view : *views) view.data = static_cast<std::byte*>(view.data) - base;
    });
    if (!stream_.queue()) stream_.synchronize();  // what the launch refers to stays until it has run
  }
  // Copies the outputs back to where the call had them.
  void finish() {
    for (size_t o = 0; o < out_.size(); ++o)
      device_.copy_out(stream_, host_out_[o].data, out_[o].data, bytes_of(out_[o]));
    stream_.synchronize();
  }

 private:
  static size_t bytes_of(const View& view) { return size_t(view.numel() * sluice::bytes_of(view.dtype)); }
  View copied(View view) {
    void*& memory = memory_[view.data];
    if (!memory) {
      memory = device_.allocate(bytes_of(view) + 64);
      device_.copy_in(stream_, memory, view.data, bytes_of(view));
    }
    view.data = memory;
    return view;
  }

  Device& device_;
  DeviceStream& stream_;
  Call call_;
  std::vector<View> in_, out_, host_out_;
  std::map<void*, void*> memory_;
};

// Whether two results of a dtype are the same up to the order of sums.
inline bool near(DType dtype, double a, double b) {
  if (!is_float(dtype)) return a == b;
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  double tolerance = dtype == DType::float32 ? 2e-5 : 1e-12;
  return a == b || std::abs(a - b) <= tolerance * std::max({1.0, std::abs(a), std::abs(b)});
}

}  // namespace sluice::test
