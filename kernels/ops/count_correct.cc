// SPDX-License-Identifier: Apache-2.0
#include "kernels/labels.h"
#ifdef __CUDACC__
#include "kernels/labels_cuda.h"
#endif

namespace sluice::ops {
namespace {

// A row is right when argmax would give its label: nothing before it is as large, nothing after it larger.
template <class T>
constexpr bool is_right(const T* row, int64_t classes, int64_t label) {
  for (int64_t c = 0; c < classes; ++c)
    if (!(c < label ? row[c] < row[label] : row[c] <= row[label])) return false;
  return true;
}

}  // namespace

#ifdef __CUDACC__
namespace {

template <class T>
__global__ void count_right(const T* logits, int64_t rows, DeviceLabels labels, double* parts) {
  double count = 0;
  int64_t stride = int64_t(gridDim.x) * row_threads * block_rows;
  int64_t first = (int64_t(blockIdx.x) * block_rows + threadIdx.y) * row_threads + threadIdx.x;
  for (int64_t row = first; row < rows; row += stride) {
    int64_t label = labels.at(row);
    count += label >= 0 && is_right(logits + row * labels.classes, labels.classes, label);
  }
  count = combine_column<Plus>(combine_row<Plus>(count));
  if (threadIdx.x == 0 && threadIdx.y == 0) parts[blockIdx.x] = count;
}

}  // namespace

void count_correct_cuda(const Call& call) {
  CudaQueue& queue = queue_of(call);
  int64_t rows = call.in[0].dims[0];
  unsigned blocks = blocks_for(queue, rows, row_threads * block_rows);
  auto* parts = reinterpret_cast<double*>(queue.workspace);
  DeviceLabels labels(call, "count_correct");
  if (call.in[0].dtype == DType::float32)
    launch(queue, blocks, block_of_rows(), count_right<float>, call.in[0].as<const float>(), rows, labels, parts);
  else
    launch(queue, blocks, block_of_rows(), count_right<double>, call.in[0].as<const double>(), rows, labels, parts);
  launch(queue, 1, block_of_rows(), sum_parts<float>, parts, int64_t(blocks), 1.0, call.out[0].as<float>());
}
#else
namespace {

std::vector<LogicalType> types(const RuleArgs& args) {
  label_rows(args);
  return {{DType::float32, {}}};
}

std::vector<Signature> signatures(const RuleArgs&) { return {{{Sbp::split(0), Sbp::split(0)}, {Sbp::partial()}}}; }

void cpu(const Call& call) {
  const View& logits = call.in[0];
  int64_t rows = logits.dims[0], classes = logits.dims[1], count = 0;
  Labels labels(call, "count_correct");
  visit_dtype(logits.dtype, [&]<class T>(Tag<T>) {
    for (int64_t r = 0; r < rows; ++r) count += is_right(logits.as<T>() + r * classes, classes, labels.at(r));
  });
  *call.out[0].as<float>() = float(count);
}

constexpr Sample samples[] = {{"float[4b,5] int64[4b]<5"}, {"float[7,3] int32[7]<3"}};

}  // namespace

[[gnu::weak]] DeviceKernel count_correct_cuda;

extern constinit const OpDef count_correct{
    .name = "count_correct",
    .doc = "How many rows of logits[n,c] have their largest value at the class that labels[n] names (float32).",
    .samples = samples,
    .inputs = "logits,labels",
    .rule = {.types = types, .signatures = signatures},
    .cpu = cpu,
    .cuda = count_correct_cuda,
    .hidden = true,
};
#endif

}  // namespace sluice::ops
