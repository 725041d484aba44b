// SPDX-License-Identifier: Apache-2.0
#include "actors/body.h"

namespace sluice {

std::unique_ptr<Body> make_body(const BodyContext& context) {
  const std::string& kind = context.actor.plan->kind;
  if (kind == "sink") return make_sink(context);  // the client gets its outputs (of zeros) from a null device too
  if (!context.world.computes) return nullptr;
  if (kind == "compute") return make_compute(context);
  if (kind == "move") return make_move(context);
  bool inlet = kind == "source" || kind == "feed";
  if (inlet && context.actor.plan->tensors.empty()) return nullptr;  // it passes on that a step was granted
  if (kind == "source") return make_source(context);
  if (kind == "feed") return make_feed(context);
  return nullptr;  // a kind without data: it passes tokens on
}

}  // namespace sluice
