// SPDX-License-Identifier: Apache-2.0
#include "kernels/labels.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"
#include "kernels/softmax.h"
#ifdef __CUDACC__
#include "kernels/labels_cuda.h"
#endif

namespace sluice::ops {

#ifdef __CUDACC__
namespace {

// (softmax(logits) - one_hot(labels)) * g / rows; a row of threads has a row. y may be the logits.
template <class T>
__global__ void loss_gradients(const T* logits, int64_t rows, DeviceLabels labels, const T* g, bool each, T scale,
                               T* y) {
  for (int64_t first = int64_t(blockIdx.x) * block_rows; first < rows; first += int64_t(gridDim.x) * block_rows) {
    int64_t row = first + threadIdx.y, end = row < rows ? labels.classes : 0;
    const T* x = logits + row * labels.classes;
    T* out = y + row * labels.classes;
    T most = -std::numeric_limits<T>::infinity(), total = 0;
    for (int64_t c = threadIdx.x; c < end; c += row_threads) most = x[c] > most ? x[c] : most;
    most = combine_row<Larger>(most);
    for (int64_t c = threadIdx.x; c < end; c += row_threads) total += lane_exp(x[c] - most);
    total = combine_row<Plus>(total);
    if (row >= rows) continue;
    int64_t label = labels.at(row);
    T by = g[each ? row : 0] * scale, share = by / total;
    for (int64_t c = threadIdx.x; c < end; c += row_threads)
      out[c] = lane_exp(x[c] - most) * share - (c == label ? by : T(0));
  }
}

template <class T>
void run_gradient(const Call& call) {
  CudaQueue& queue = queue_of(call);
  auto& reduction = call.attr<std::string>("reduction");
  int64_t rows = call.in[0].dims[0];
  if (rows == 0) return;
  T scale = reduction == "mean" ? T(1 / double(whole_rows(call))) : T(1);
  launch(queue, blocks_for(queue, rows, block_rows), block_of_rows(), loss_gradients<T>, call.in[0].as<const T>(), rows,
         DeviceLabels(call, "cross_entropy"), call.in[2].as<const T>(), reduction == "none", scale,
         call.out[0].as<T>());
}

}  // namespace

void cross_entropy_grad_cuda(const Call& call) {
  call.in[0].dtype == DType::float32 ? run_gradient<float>(call) : run_gradient<double>(call);
}
#else
namespace {

bool per_row(const Attrs& attrs) { return attr<std::string>(attrs, "reduction") == "none"; }

std::vector<LogicalType> types(const RuleArgs& args) {
  Dim rows = label_rows(args);
  LogicalType want{args.in[0].dtype, per_row(*args.attrs) ? Shape{rows} : Shape{}};
  if (args.in[2] != want) refuse(args, Code::value, "the loss's gradient must be " + text_of(want));
  return {args.in[0]};
}

std::vector<Signature> signatures(const RuleArgs& args) {
  Sbp s = Sbp::split(0), b = Sbp::broadcast(), p = Sbp::partial();
  return {{{s, s, per_row(*args.attrs) ? s : b}, {s}}, {{b, b, p}, {p}}};
}

// (softmax(logits) - one_hot(labels)) * g / rows
template <class T>
void run(const Call& call) {
  const View& logits = call.in[0];
  int64_t rows = logits.dims[0], classes = logits.dims[1];
  const T* g = call.in[2].as<T>();
  bool each = per_row(*call.attrs);
  T scale = call.attr<std::string>("reduction") == "mean" && rows > 0 ? T(1 / double(whole_rows(call))) : T(1);
  Labels labels(call, "cross_entropy");
  auto run_row = [&](int64_t r) {
    const T* x = logits.as<T>() + r * classes;
    T* y = call.out[0].as<T>() + r * classes;
    int64_t label = labels.at(r);
    T by = g[each ? r : 0] * scale, share = by / row_exp(x, classes, row_max(x, classes), y);
#pragma omp simd
    for (int64_t c = 0; c < classes; ++c) y[c] *= share;
    y[label] -= by;
  };
  int64_t grain = std::max<int64_t>(65536 / std::max<int64_t>(classes, 1), 1);
  parallel_for(call.threads, rows, grain, [&](int64_t begin, int64_t end) {
    vectorized([&] {
      for (int64_t r = begin; r < end; ++r) run_row(r);
    });
  });
}

constexpr AttrDef attrs[] = {{AttrDef::text, "reduction", "That of the cross_entropy.", "\"mean\""}};
constexpr Sample samples[] = {{"float[4b,5] int64[4b]<5 float[]"},
                              {"float[7,3] int32[7]<3 float[]", "reduction=\"sum\""},
                              {"float[4b,5] uint8[4b]<5 float[4b]", "reduction=\"none\""}};

}  // namespace

[[gnu::weak]] DeviceKernel cross_entropy_grad_cuda;

extern constinit const OpDef cross_entropy_grad{
    .name = "cross_entropy_grad",
    .doc = "The gradient of cross_entropy with respect to its logits, given the loss's.",
    .samples = samples,
    .inputs = "logits,labels,grad",
    .attrs = attrs,
    .rule = {.types = types, .signatures = signatures},
    .cpu = [](const Call& call) { call.in[0].dtype == DType::float32 ? run<float>(call) : run<double>(call); },
    .cuda = cross_entropy_grad_cuda,
    .alias = 1,
    .hidden = true,
};
#endif

}  // namespace sluice::ops
