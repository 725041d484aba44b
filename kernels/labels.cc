// SPDX-License-Identifier: Apache-2.0
#include "kernels/labels.h"

#include <fmt/format.h>

namespace sluice {

Dim label_rows(const RuleArgs& args) {
  auto &logits = args.in[0], &labels = args.in[1];
  if (logits.shape.size() != 2) refuse(args, Code::value, "the logits must have the shape (rows, classes)");
  if (!is_compute_float(logits.dtype)) refuse(args, Code::type, "the logits must be float32 or float64");
  if (!is_integer(labels.dtype)) refuse(args, Code::type, "the labels must be integers", "convert with astype");
  if (labels.shape.size() != 1 || labels.shape[0] != logits.shape[0])
    refuse(args, Code::value, "there must be one label for each row of the logits");
  return logits.shape[0];
}

int64_t whole_rows(const Call& call) {
  const Dim& rows = call.in_types[0].shape[0];
  if (rows.sym == fixed_sym) return rows.size;
  check(call.window != nullptr, "a call on a bounded dim without a window");
  return rows.granule * call.window->whole[size_t(rows.sym)];
}

int64_t Labels::at(int64_t row) const {
  int64_t label = -1;
  visit_dtype(view_.dtype, [&]<class T>(Tag<T>) { label = int64_t(view_.as<T>()[row]); });
  if (label >= 0 && label < classes_) return label;
  throw Error(Code::index,
              fmt::format("{}: label {} of row {} is outside of [0, {})", op_, label, view_.origin[0] + row, classes_));
}

}  // namespace sluice
