# SPDX-License-Identifier: Apache-2.0
# A job as a client submits it: a logical graph, its loss, its optimizer and its data sources. A graph is data, never
# code: nothing in here is executed, and a reader trusts nothing in here before check_graph() has passed.
#
# A file or a frame is 8 bytes of magic and version, 8 bytes of xxHash64 over the rest, and one canonical message (one
# segment without a table), so equal jobs are equal bytes. Fields are only ever added; a number is never used again.
@0xfd4b6978f8ae4012;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("sluice::wire");

# Where the user wrote it. A line of 0 is unknown.
struct Place {
  file @0 :Text;
  line @1 :Int32;
}

# One dim of a logical shape. Its size is a bound; where `sym` is not 0 the run-time size is `granule` times the extent
# of that symbol (1: the batch), which never exceeds the bound.
struct Dim {
  size @0 :Int64;
  sym @1 :Int32;
  granule @2 :Int64 = 1;
}

# The order is base/dtype.h's, and fixed for good.
enum ElementType {
  float32 @0;
  float64 @1;
  bfloat16 @2;
  float16 @3;
  int8 @4;
  int16 @5;
  int32 @6;
  int64 @7;
  uint8 @8;
  bool @9;
}

struct Type {
  dtype @0 :ElementType;
  shape @1 :List(Dim);
}

# A typed attribute of an op, a source or an optimizer. The kind of the value is part of it: 1 is not 1.0.
struct Attr {
  name @0 :Text;
  union {
    boolean @1 :Bool;
    integer @2 :Int64;
    real @3 :Float64;
    text @4 :Text;
    integers @5 :List(Int64);
    shape @6 :List(Dim);
    dtype @7 :ElementType;
  }
}

# A reader of data and its arguments. `fixed` keeps the file's order; the default shuffles by the job's seed.
struct Source {
  reader @0 :Text;
  attrs @1 :List(Attr);
  fixed @2 :Bool;
}

enum Phase {
  forward @0;
  backward @1;
  optimizer @2;
}

# Tensors, nodes and variables are named by their index in the graph's lists. -1 stands for none.

struct Tensor {
  name @0 :Text;
  type @1 :Type;
  producer @2 :Int32 = -1;  # the node; none: a variable's value or an input
  output @3 :Int32;         # which output of the producer
}

struct Node {
  op @0 :Text;
  name @1 :Text;
  inputs @2 :List(Int32);
  outputs @3 :List(Int32);
  attrs @4 :List(Attr);
  place @5 :Place;
  phase @6 :Phase;
  origin @7 :Int32 = -1;  # of a backward node: the forward node whose gradient this is
  of @8 :Text;            # of an optimizer's node: the variable it serves
}

# A value that outlives a step. `next` is its value after the step; none: it never changes.
struct Variable {
  name @0 :Text;
  value @1 :Int32 = -1;
  next @2 :Int32 = -1;
  frozen @3 :Bool;  # not trained
  of @4 :Text;      # of an optimizer's state: the parameter it belongs to
}

# A tensor that each step gets from outside: field `field` of a source; no source: the client feeds it.
struct Input {
  name @0 :Text;
  tensor @1 :Int32 = -1;
  source @2 :Int32 = -1;
  field @3 :Int32;
}

struct Output {
  name @0 :Text;
  tensor @1 :Int32 = -1;
}

# A model as a function (variables, inputs) -> (next variables, outputs), in topological order.
struct Graph {
  tensors @0 :List(Tensor);
  nodes @1 :List(Node);
  variables @2 :List(Variable);
  inputs @3 :List(Input);
  sources @4 :List(Source);
  outputs @5 :List(Output);
  batchBound @6 :Int64;  # the bound of the batch symbol; 0: no batch
}

# The root.
struct Job {
  name @0 :Text;
  graph @1 :Graph;
  loss @2 :Int32 = -1;   # none: evaluate or predict only
  optimizer @3 :Text;    # the name of an op with states; "": no update
  optimizerAttrs @4 :List(Attr);
  seed @5 :UInt64;
  evaluate @6 :Bool;     # not training: dropout is off
}
