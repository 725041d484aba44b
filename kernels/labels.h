// SPDX-License-Identifier: Apache-2.0
// Class labels of rows: the rules and checks that the losses and metrics over (logits, labels) share.
// Thread rule: pure functions and values.
#pragma once
#include "kernels/rule.h"

namespace sluice {

// Checks logits[n,c] (float32 or float64) and labels[n] (integers); gives the rows' dim.
Dim label_rows(const RuleArgs& args);
// The number of rows of the whole batch: means are over it, whatever part of it a firing sees.
int64_t whole_rows(const Call& call);

// The labels of a call's rows, read and checked one by one. They stay out of line: callers are vectorised loops.
class Labels {
 public:
  Labels(const Call& call, std::string_view op) : view_(call.in[1]), classes_(call.in[0].dims[1]), op_(op) {}
  // Throws Error(index) when the label is no class; the message counts rows in the whole batch.
  int64_t at(int64_t row) const;

 private:
  const View& view_;
  const int64_t classes_;
  const std::string_view op_;
};

}  // namespace sluice
