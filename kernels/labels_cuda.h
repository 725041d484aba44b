// SPDX-License-Identifier: Apache-2.0
// Labels as kernels read them: a label that is no class is reported, and the row's result is what the caller makes of
// -1. Seen by nvcc only. Thread rule: that of the call's queue.
#pragma once
#include "kernels/block_cuda.h"
#include "kernels/labels.h"

namespace sluice {

struct DeviceLabels {
  const void* data;
  DType dtype;
  int64_t classes, first_row;  // of the whole batch
  const char* op;
  CudaFault* fault;

  DeviceLabels(const Call& call, const char* name)
      : data(call.in[1].data),
        dtype(call.in[1].dtype),
        classes(call.in[0].dims[1]),
        first_row(call.in[1].origin[0]),
        op(name),
        fault(queue_of(call).fault) {}

  __device__ int64_t read(int64_t row) const {
    switch (dtype) {
      case DType::int8: return static_cast<const int8_t*>(data)[row];
      case DType::int16: return static_cast<const int16_t*>(data)[row];
      case DType::int32: return static_cast<const int32_t*>(data)[row];
      case DType::int64: return static_cast<const int64_t*>(data)[row];
      default: return static_cast<const uint8_t*>(data)[row];
    }
  }
  // The label, or -1 when it is no class.
  __device__ int64_t at(int64_t row) const {
    int64_t label = read(row);
    if (label >= 0 && label < classes) return label;
    report_label(fault, op, first_row + row, label, classes);
    return -1;
  }
};

}  // namespace sluice
