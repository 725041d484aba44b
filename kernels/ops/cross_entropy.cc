// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "kernels/build.h"
#include "kernels/labels.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"
#include "kernels/softmax.h"

namespace sluice::ops {
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
};

}  // namespace sluice::ops
