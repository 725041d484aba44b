// SPDX-License-Identifier: Apache-2.0
// The entry of `cuda` in the table of devices. The device itself is cuda.cu; in a build without nvcc it is not there.
#include "base/error.h"
#include "kernels/device/device.h"

namespace sluice {

// Of cuda.cu; null in a build without nvcc.
[[gnu::weak]] int count_cuda();
[[gnu::weak]] std::unique_ptr<Device> make_cuda(const DeviceOptions& options);
[[gnu::weak]] void check_cuda_queue(void* queue, std::string_view what);

void check_queue(void* queue, std::string_view what) {
  check(queue && check_cuda_queue, "a queue of a device that this build does not have");
  check_cuda_queue(queue, what);
}

namespace devices {
extern constinit const DeviceDef cuda{
    .name = "cuda",
    .doc = "An NVIDIA GPU, by the CUDA toolkit found when this was built.",
    .make = [](const DeviceOptions& options) -> std::unique_ptr<Device> {
      if (!make_cuda)
        throw Error(Code::not_found, "device cuda: this build has no CUDA", {},
                    "install NVIDIA's CUDA toolkit and build again, or use device cpu");
      return make_cuda(options);
    },
    .count = [] { return count_cuda ? count_cuda() : 0; },
};
}  // namespace devices
}  // namespace sluice
