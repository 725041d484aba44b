// SPDX-License-Identifier: Apache-2.0
// Figures of moves between processes: an all-reduce by a plan on the workers of a cluster, and one wire of a transport
// between two processes.
// Thread rule: the main thread only.
#pragma once
#include <memory>
#include <string>

#include "actors/floor.h"

namespace sluice {

struct BenchMove {
  int procs = 2;
  double mib = 64;
  double seconds = 3;
  std::string transport = "ucx";  // of p2p: ucx (TCP on loopback) or shm
};

struct MoveTimes {
  double median_ms = 0, min_ms = 0;  // of one all-reduce, or of one message among many in flight
  double latency_us = 0;             // p2p: half of a round trip of one message
  int rounds = 0;
  double memcpy_gb_s = 0;  // of one core, same size, in the same run
  double gb_s(const BenchMove& bench) const { return bench.mib * 1048576 / (median_ms * 1e6); }
};

// Float32, summed: P -> B by the move that the planner takes. `runtime` runs all_reduce_plan on bench.procs ranks.
Plan all_reduce_plan(const BenchMove& bench);
MoveTimes bench_allreduce(const BenchMove& bench, Runtime& runtime);
MoveTimes bench_p2p(const BenchMove& bench);

std::string allreduce_json(const BenchMove& bench, const MoveTimes& times);
std::string p2p_json(const BenchMove& bench, const MoveTimes& times);

}  // namespace sluice
