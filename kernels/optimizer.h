// SPDX-License-Identifier: Apache-2.0
// What all optimizers share. Inputs: param, grad, then the states as declared; output 0: the next param, then the next
// states. An output usually is its input's memory (one slot) and may be other memory (staleness).
// Thread rule: pure but for the buffers.
#pragma once
#include "kernels/op.h"

namespace sluice {

// param, grad and the states of one type, float32 or float64; scalar states are float32.
std::vector<LogicalType> optimizer_types(const RuleArgs& args);
// The update is element by element: any dim may be split, the scalars are everywhere. A partial gradient is not legal.
std::vector<Signature> optimizer_signatures(const RuleArgs& args);

// PyTorch's Adam; decoupled: AdamW.
void adam_run(const Call& call, bool decoupled);

}  // namespace sluice
