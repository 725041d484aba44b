// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "kernels/build.h"
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

// A row of threads has a row of logits. parts[b] is the sum of block b's losses.
template <class T>
__global__ void losses(const T* logits, int64_t rows, DeviceLabels labels, T* each, double* parts) {
  double sum = 0;
  for (int64_t first = int64_t(blockIdx.x) * block_rows; first < rows; first += int64_t(gridDim.x) * block_rows) {
    int64_t row = first + threadIdx.y, end = row < rows ? labels.classes : 0;
    const T* x = logits + row * labels.classes;
    T most = -std::numeric_limits<T>::infinity(), total = 0;
    for (int64_t c = threadIdx.x; c < end; c += row_threads) most = x[c] > most ? x[c] : most;
    most = combine_row<Larger>(most);
    for (int64_t c = threadIdx.x; c < end; c += row_threads) total += lane_exp(x[c] - most);
    total = combine_row<Plus>(total);
    if (row >= rows || threadIdx.x != 0) continue;
    int64_t label = labels.at(row);
    T loss = label < 0 ? std::numeric_limits<T>::quiet_NaN() : lane_log(total) + most - x[label];
    if (each) each[row] = loss;
    sum += double(loss);
  }
  sum = combine_column<Plus>(sum);
  if (threadIdx.x == 0 && threadIdx.y == 0) parts[blockIdx.x] = sum;
}

template <class T>
void run(const Call& call) {
  CudaQueue& queue = queue_of(call);
  auto& reduction = call.attr<std::string>("reduction");
  int64_t rows = call.in[0].dims[0];
  T *out = call.out[0].as<T>(), *each = reduction == "none" ? out : nullptr;
  if (each && rows == 0) return;
  unsigned blocks = blocks_of_rows(queue, rows);
  auto* parts = reinterpret_cast<double*>(queue.workspace);
  launch(queue, blocks, block_of_rows(), losses<T>, call.in[0].as<const T>(), rows, DeviceLabels(call, "cross_entropy"),
         each, parts);
  double divisor = reduction == "mean" ? double(whole_rows(call)) : 1;
  if (!each) launch(queue, 1, block_of_rows(), sum_parts<T>, parts, int64_t(blocks), divisor, out);
}

}  // namespace

void cross_entropy_cuda(const Call& call) { call.in[0].dtype == DType::float32 ? run<float>(call) : run<double>(call); }
#else
namespace {

bool per_row(const Attrs& attrs) { return attr<std::string>(attrs, "reduction") == "none"; }

std::vector<LogicalType> types(const RuleArgs& args) {
  auto& reduction = attr<std::string>(*args.attrs, "reduction");
  if (reduction != "mean" && reduction != "sum" && reduction != "none")
    refuse(args, Code::value, "reduction is '" + reduction + "'", "use mean, sum or none");
  Dim rows = label_rows(args);
  return {{args.in[0].dtype, per_row(*args.attrs) ? Shape{rows} : Shape{}}};
}

std::vector<Signature> signatures(const RuleArgs& args) {
  return {{{Sbp::split(0), Sbp::split(0)}, {per_row(*args.attrs) ? Sbp::split(0) : Sbp::partial()}}};
}

void grad(GradArgs& g) {
  g.result[0] = g.build.op("cross_entropy_grad", {g.in(0), g.in(1), g.grad[0]},
                           {{"reduction", attr<std::string>(g.node.attrs, "reduction")}});
}

// The loss of each row, and their sum in an order that does not depend on the threads: by groups of rows.
template <class T>
void run(const Call& call) {
  constexpr int64_t group = 64;
  const View& logits = call.in[0];
  int64_t rows = logits.dims[0], classes = logits.dims[1], groups = (rows + group - 1) / group;
  T* each = per_row(*call.attrs) ? call.out[0].as<T>() : nullptr;
  std::vector<double> sums(size_t(groups), 0.0);
  Labels labels(call, "cross_entropy");
  auto run_group = [&](int64_t g) {
    for (int64_t r = g * group; r < std::min((g + 1) * group, rows); ++r) {
      const T* x = logits.as<T>() + r * classes;
      T most = row_max(x, classes), loss = std::log(row_exp_sum(x, classes, most)) + most - x[labels.at(r)];
      if (each) each[r] = loss;
      sums[size_t(g)] += double(loss);
    }
  };
  int64_t grain = std::max<int64_t>(65536 / (group * std::max<int64_t>(classes, 1)), 1);
  parallel_for(call.threads, groups, grain, [&](int64_t begin, int64_t end) {
    vectorized([&] {
      for (int64_t g = begin; g < end; ++g) run_group(g);
    });
  });
  if (each) return;
  double total = 0;
  for (double sum : sums) total += sum;
  if (call.attr<std::string>("reduction") == "mean") total /= double(whole_rows(call));
  *call.out[0].as<T>() = T(total);
}

constexpr AttrDef attrs[] = {
    {AttrDef::text, "reduction", "\"mean\" or \"sum\" over the batch, or \"none\": the loss of each row.", "\"mean\""}};
constexpr Sample samples[] = {{"float[4b,5] int64[4b]<5"},
                              {"float[7,3] int32[7]<3", "reduction=\"sum\""},
                              {"float[4b,5] uint8[4b]<5", "reduction=\"none\""}};

}  // namespace

[[gnu::weak]] DeviceKernel cross_entropy_cuda;

extern constinit const OpDef cross_entropy{
    .name = "cross_entropy",
    .doc =
        "The cross-entropy between the logits input[n,c] and the classes that target[n] names. The mean is over the "
        "whole batch.",
    .samples = samples,
    .inputs = "input,target",
    .attrs = attrs,
    .rule = {.types = types, .signatures = signatures},
    .grad = grad,
    .cpu = [](const Call& call) { call.in[0].dtype == DType::float32 ? run<float>(call) : run<double>(call); },
    .cuda = cross_entropy_cuda,
};
#endif

}  // namespace sluice::ops
