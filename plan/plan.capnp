# SPDX-License-Identifier: Apache-2.0
# A plan: everything that the running world will do. A worker gets these bytes and nothing else of the job.
#
# Read it from the top: a plan has *classes* of ranks that do the same; a class has *streams* (what runs in order on one
# device), and an arena of memory. In the arena lie *registers*, groups of tensors with a number of slots, and the
# streams' scratch. *Actors* fire on streams; they are joined by registers only: an actor fires when each of its
# in-ports has a full slot and each of its out-ports has a free one. That is all the synchronization there is.
#
# Sizes and peers are not in here: a rank computes them from its coordinates, so the plan of 1,000 replicas is as long as
# that of one. The frame is job.capnp's: magic, xxHash64, one canonical message; equal plans are equal bytes, and workers
# agree on the hash before step 0. Fields are only ever added; a number is never used again.
@0x9135e22f453287d5;

using Cxx = import "/capnp/c++.capnp";
using Job = import "../graph/job.capnp";
$Cxx.namespace("sluice::plan_wire");

# How a tensor lies on one axis of its mesh.
struct Placement {
  union {
    broadcast @0 :Void;   # the same copy everywhere
    split @1 :UInt8;      # in balanced pieces along this dim
    partialSum @2 :Void;  # the value is the sum of the parts
    partialMax @3 :Void;
    partialMin @4 :Void;
  }
}

# Names for the parts of a rank's coordinates. The last axis is the innermost link.
struct Axis {
  name @0 :Text;
  size @1 :Int32;
}

# Ranks [firstRank, firstRank + product of the axes).
struct Mesh {
  name @0 :Text;
  axes @1 :List(Axis);
  firstRank @2 :Int32;
}

# What runs in order on one device, with scratch that lives as long as one chain. Offsets are in the class's arena.
struct Stream {
  name @0 :Text;
  scratchOffset @1 :Int64;
  scratchBytes @2 :Int64;
}

struct Class {
  name @0 :Text;
  mesh @1 :Mesh;
  pool @2 :Text;  # of devices: "" the main one, "ps", "client"
  streams @3 :List(Stream);
  arenaBytes @4 :Int64;
  arenaBytesLowerBound @5 :Int64;
  stage @6 :Int32;
}

# Tensors, registers and actors are named by their index in the plan's lists. -1 stands for none.

struct Tensor {
  name @0 :Text;
  type @1 :Job.Type;
  cls @2 :Int32;
  placement @3 :List(Placement);  # one an axis of the class's mesh
  layout @4 :Text;                # "row" or "col"
  register @5 :Int32 = -1;        # whose slot holds it; none: the scratch of its chain's stream
  offset @6 :Int64;               # in the slot or in the scratch
  bytes @7 :Int64;                # of the bound, on the largest shard
}

# A slot is a credit: an actor that finds none free waits, and so does whatever feeds it.
struct Register {
  name @0 :Text;
  cls @1 :Int32;
  slots @2 :Int32 = 1;
  bytes @3 :Int64;          # of one slot
  offset @4 :Int64;         # of slot 0; slot i follows at offset + i * bytes
  initial @5 :Int32;        # slots that are full before the first firing
  producer @6 :Int32 = -1;  # the actor; none: a constant, read without tokens
  tensors @7 :List(Int32);
  variable @8 :Text;        # the variable it holds across steps; its staleness is slots - 1
}

# An in-port keeps its token for `period` firings; an out-port publishes at every `period`-th.
struct Port {
  register @0 :Int32;
  period @1 :Int32 = 1;
}

struct Op {
  op @0 :Text;
  name @1 :Text;
  attrs @2 :List(Job.Attr);
  inputs @3 :List(Int32);
  outputs @4 :List(Int32);
  workspaceOffset @5 :Int64;  # in the stream's scratch
  workspaceBytes @6 :Int64;
  place @7 :Job.Place;
}

# One exchange, run on the ranks of the actor's class; `from` may live on another.
struct Move {
  move @0 :Text;
  from @1 :Int32;
  to @2 :Int32;
}

struct Actor {
  name @0 :Text;
  kind @1 :Text;
  cls @2 :Int32;
  stream @3 :Int32;
  key @4 :Int64;           # smaller fires first among the ready actors of a stream
  firings @5 :Int32 = 1;   # a step
  inputs @6 :List(Port);
  outputs @7 :List(Port);
  ops @8 :List(Op);        # of a compute actor: a chain, run without messages between
  moves @9 :List(Move);    # of a move actor
  source @10 :Int32 = -1;
  names @11 :List(Text);   # of a feed: its inputs; of a sink: its outputs
  phase @12 :Job.Phase;
  tensors @13 :List(Int32);  # of a feed, source or sink: one a name
}

# An explained choice of the planner.
struct Note {
  key @0 :Text;
  text @1 :Text;
}

# The root.
struct Plan {
  job @0 :Text;
  seed @1 :UInt64;
  microBatches @2 :Int32 = 1;
  batchBound @3 :Int64;  # the global batch
  exact @4 :Bool;        # sums in one fixed order
  device @5 :Text;
  classes @6 :List(Class);
  tensors @7 :List(Tensor);
  registers @8 :List(Register);
  actors @9 :List(Actor);
  sources @10 :List(Job.Source);
  notes @11 :List(Note);
}
