// SPDX-License-Identifier: Apache-2.0
// Class labels of rows: the rules and checks that the losses and metrics over (logits, labels) share.
// Thread rule: pure.
#pragma once
#include <fmt/format.h>

#include "kernels/rule.h"

namespace sluice {

// Checks logits[n,c] (float32 or float64) and labels[n] (integers); gives the rows' dim.
inline Dim label_rows(const RuleArgs& args) {
  auto &logits = args.in[0], &labels = args.in[1];
  if (logits.shape.size() != 2) refuse(args, Code::value, "the logits must have the shape (rows, classes)");
  if (!is_compute_float(logits.dtype)) refuse(args, Code::type, "the logits must be float32 or float64");
  if (!is_integer(labels.dtype)) refuse(args, Code::type, "the labels must be integers", "convert with astype");
  if (labels.shape.size() != 1 || labels.shape[0] != logits.shape[0])
    refuse(args, Code::value, "there must be one label for each row of the logits");
  return logits.shape[0];
}

// The number of rows of the whole batch: means are over it, whatever part of it a firing sees.
inline int64_t whole_rows(const Call& call) {
  const Dim& rows = call.in_types[0].shape[0];
  if (rows.sym == fixed_sym) return rows.size;
  check(call.window != nullptr, "a call on a bounded dim without a window");
  return rows.granule * call.window->whole[size_t(rows.sym)];
}

// Calls body(label_of) where label_of(row) reads and checks a label. Throws Error(index) on one out of range.
template <class F>
void with_labels(const Call& call, std::string_view op, F&& body) {
  const View& view = call.in[1];
  int64_t classes = call.in[0].dims[1];
  visit_dtype(view.dtype, [&]<class T>(Tag<T>) {
    body([&](int64_t row) {
      auto label = int64_t(view.as<T>()[row]);
      if (label < 0 || label >= classes)
        throw Error(Code::index, fmt::format("{}: label {} of row {} is outside of [0, {})", op, label,
                                             view.origin[0] + row, classes));
      return label;
    });
  });
}

}  // namespace sluice
