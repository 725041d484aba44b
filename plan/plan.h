// SPDX-License-Identifier: Apache-2.0
// The plan: everything the running world will do, and the only thing it knows. Written by planner/, read by actors/.
//
// Rank classes: all ranks of one mesh share one class; a rank's part (sizes, slices, peers, random offsets) is
// arithmetic on its coordinates, so the plan does not grow with data-parallel replicas. A rank may be in several
// classes (the client's mesh lies on rank 0).
// Memory is planned for the bound of every dim and for the largest shard.
//
// A *register* is a named group of tensors with `slots` slots. Actors are joined by registers only.
// A *chain* (kind "compute") is a list of ops run without messages between them.
// Rates: an actor fires `firings` times a step; an in-port with period n keeps its token for n firings, an out-port
// with period n publishes at every n-th firing. firings(producer) / period(out) == firings(consumer) / period(in).
// Invariants: verify() (plan/verify.h). Equal input gives a byte-equal plan.
// Thread rule: values.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/attr.h"
#include "graph/graph.h"
#include "placement/sbp.h"

namespace sluice {

struct PlanTensor {
  std::string name;
  LogicalType type;
  int cls = 0;  // class (mesh) it lives on
  NdSbp sbp;
  std::string layout = "row";  // "row" | "col"
  int reg = -1;                // the register whose slot holds it; -1: the scratch of its chain's stream
  int64_t offset = 0;          // in the slot or in the scratch, bytes, a multiple of 64
  int64_t bytes = 0;           // of the bound, on the largest shard
  bool operator==(const PlanTensor&) const = default;
};

struct PlanRegister {
  std::string name;
  int cls = 0;
  int slots = 1;
  int64_t bytes = 0;   // of one slot, a multiple of 64
  int64_t offset = 0;  // of slot 0 in the class's arena; slot i follows at offset + i * bytes
  int initial = 0;     // tokens that are full before the first firing
  int producer = -1;   // actor; -1: a constant (a variable that this plan does not update): read without tokens
  std::vector<int> tensors;
  std::string variable;  // not "": holds this variable across runs; slots - 1 is its staleness
  bool operator==(const PlanRegister&) const = default;
};

struct Port {
  int reg = 0;
  int period = 1;
  bool operator==(const Port&) const = default;
};

struct PlanOp {
  std::string op, name;
  Attrs attrs;
  std::vector<int> in, out;                           // plan tensors
  int64_t workspace_offset = 0, workspace_bytes = 0;  // in the stream's scratch
  Place place;
  bool operator==(const PlanOp&) const = default;
};

// One hop of a move, run on the ranks of the actor's class.
struct PlanMove {
  std::string move;      // the MoveDef's name
  int from = 0, to = 0;  // plan tensors; `from` may be of another class
  bool operator==(const PlanMove&) const = default;
};

struct PlanActor {
  std::string name;
  std::string kind;  // an ActorDef: "source" | "compute" | "move" | "sink" | "feed"
  int cls = 0;
  int stream = 0;   // within the class
  int64_t key = 0;  // smaller fires first among the ready ones of a stream
  int firings = 1;  // a step
  std::vector<Port> in, out;
  std::vector<PlanOp> ops;         // compute
  std::vector<PlanMove> moves;     // move
  int source = -1;                 // source: index into Plan::sources
  std::vector<std::string> names;  // feed: input names; source: fields; sink: output names
  std::vector<int> tensors;        // of a feed or source: what it fills; of a sink: what it hands out; one a name
  Phase phase = Phase::forward;
  bool operator==(const PlanActor&) const = default;
};

struct PlanStream {
  std::string name;                               // "compute" | "move" | "host"
  int64_t scratch_offset = 0, scratch_bytes = 0;  // in the arena
  bool operator==(const PlanStream&) const = default;
};

struct PlanClass {
  std::string name;
  Mesh mesh;
  std::string pool;  // device pool: "" (main), "ps", "client"
  std::vector<PlanStream> streams;
  int64_t arena_bytes = 0;
  int64_t arena_bytes_lower_bound = 0;
  int stage = 0;
  bool operator==(const PlanClass&) const = default;
};

struct Plan {
  std::string job;
  uint64_t seed = 0;
  int micro_batches = 1;
  int64_t batch_bound = 0;  // the global batch
  bool exact = false;
  std::string device = "cpu";
  std::vector<PlanClass> classes;
  std::vector<PlanTensor> tensors;
  std::vector<PlanRegister> registers;
  std::vector<PlanActor> actors;
  std::vector<Source> sources;
  std::vector<std::pair<std::string, std::string>> notes;  // explained choices, shown by `sluice plan`

  int ranks() const;  // 1 + the largest rank of any class
  bool operator==(const Plan&) const = default;
};

// Text form: prints and parses back to an equal plan. parse throws Error with the line.
std::string text_of(const Plan& plan);
Plan parse_plan(std::string_view text);
// Cap'n Proto form, canonical: byte-equal for equal plans. Throws Error on any malformed input.
std::vector<std::byte> encode(const Plan& plan);
Plan decode(std::span<const std::byte> bytes);
uint64_t hash_of(const Plan& plan);  // xxHash64 of encode()

}  // namespace sluice
