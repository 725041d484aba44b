// SPDX-License-Identifier: Apache-2.0
#include "kernels/labels.h"

namespace sluice::ops {
namespace {

std::vector<LogicalType> types(const RuleArgs& args) {
  label_rows(args);
  return {{DType::float32, {}}};
}

std::vector<Signature> signatures(const RuleArgs&) { return {{{Sbp::split(0), Sbp::split(0)}, {Sbp::partial()}}}; }

// A row is right when argmax would give its label: nothing before it is as large, nothing after it larger.
template <class T>
bool is_right(const T* row, int64_t classes, int64_t label) {
  for (int64_t c = 0; c < classes; ++c)
    if (!(c < label ? row[c] < row[label] : row[c] <= row[label])) return false;
  return true;
}

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

extern constinit const OpDef count_correct{
    .name = "count_correct",
    .doc = "How many rows of logits[n,c] have their largest value at the class that labels[n] names (float32).",
    .samples = samples,
    .inputs = "logits,labels",
    .rule = {.types = types, .signatures = signatures},
    .cpu = cpu,
    .hidden = true,
};

}  // namespace sluice::ops
