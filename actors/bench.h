// SPDX-License-Identifier: Apache-2.0
// What the actor machinery costs, measured through the floor itself on hand-built plans.
// Figures mean something on a quiet machine only; each is the best of several rounds.
// Thread rule: one at a time.
#pragma once
#include <string>

namespace sluice {

struct ActorFigures {
  double hop_ns = 0;            // a token from actor to actor in one stream (16 actors without work)
  double hop_spin_ns = 0;       // between two streams on two spinning workers
  double fire_ns = 0;           // an actor of one op with two inputs and two outputs (16 in a row)
  double chain_overhead = 0;    // 1,000 five-microsecond ops as 1,000 actors, over 5 ms
  double idle_cpu_percent = 0;  // of this process while a floor waits
};

ActorFigures bench_actors();
std::string bench_actors_json();  // the same as one JSON object

}  // namespace sluice
