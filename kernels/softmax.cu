// SPDX-License-Identifier: Apache-2.0
#include "kernels/block_cuda.h"
#include "kernels/softmax.h"

namespace sluice {
namespace {

// The axis is the last: a row of threads has a row of numbers. y may be x.
template <class T>
__global__ void softmax_rows(const T* x, T* y, int64_t rows, int64_t n, bool log) {
  for (int64_t first = int64_t(blockIdx.x) * block_rows; first < rows; first += int64_t(gridDim.x) * block_rows) {
    int64_t row = first + threadIdx.y, end = row < rows ? n : 0;
    const T* in = x + row * n;
    T* out = y + row * n;
    T most = -std::numeric_limits<T>::infinity(), sum = 0;
    for (int64_t c = threadIdx.x; c < end; c += row_threads) most = in[c] > most ? in[c] : most;
    most = combine_row<Larger>(most);
    for (int64_t c = threadIdx.x; c < end; c += row_threads) sum += lane_exp(in[c] - most);
    sum = combine_row<Plus>(sum);
    T shift = log ? most + lane_log(sum) : T(1) / sum;
    for (int64_t c = threadIdx.x; c < end; c += row_threads)
      out[c] = log ? in[c] - shift : lane_exp(in[c] - most) * shift;
  }
}

// The axis has `inner` elements after it: a thread has a column.
template <class T>
__global__ void softmax_columns(const T* x, T* y, int64_t columns, int64_t n, int64_t inner, bool log) {
  for (int64_t i = thread_index(); i < columns; i += thread_stride()) {
    int64_t offset = i / inner * n * inner + i % inner;
    const T* in = x + offset;
    T* out = y + offset;
    T most = -std::numeric_limits<T>::infinity(), sum = 0;
    for (int64_t r = 0; r < n; ++r) most = in[r * inner] > most ? in[r * inner] : most;
    for (int64_t r = 0; r < n; ++r) sum += lane_exp(in[r * inner] - most);
    T shift = log ? most + lane_log(sum) : T(1) / sum;
    for (int64_t r = 0; r < n; ++r)
      out[r * inner] = log ? in[r * inner] - shift : lane_exp(in[r * inner] - most) * shift;
  }
}

template <class T>
void run(const Call& call, bool log) {
  const View& in = call.in[0];
  auto axis = int(call.attr<int64_t>("axis"));
  if (axis < 0) axis += in.rank;
  int64_t outer = 1, n = in.dims[size_t(axis)], inner = 1;
  for (int d = 0; d < axis; ++d) outer *= in.dims[size_t(d)];
  for (int d = axis + 1; d < in.rank; ++d) inner *= in.dims[size_t(d)];
  if (outer * n * inner == 0) return;
  CudaQueue& queue = queue_of(call);
  const T* x = in.as<const T>();
  T* y = call.out[0].as<T>();
  if (inner == 1)
    launch(queue, blocks_for(queue, outer, block_rows), block_of_rows(), softmax_rows<T>, x, y, outer, n, log);
  else
    launch(queue, blocks_for(queue, outer * inner), cuda_threads, softmax_columns<T>, x, y, outer * inner, n, inner,
           log);
}

}  // namespace

void softmax_cuda(const Call& call) {
  call.in[0].dtype == DType::float32 ? run<float>(call, false) : run<double>(call, false);
}
void log_softmax_cuda(const Call& call) {
  call.in[0].dtype == DType::float32 ? run<float>(call, true) : run<double>(call, true);
}

}  // namespace sluice
