# SPDX-License-Identifier: Apache-2.0
# What coordinator, workers and clients say to each other. Nobody says it before the handshake (cluster/handshake.h) has
# proved the cluster's secret on both sides, and what a connection may do follows from the role it proved.
#
#   client --ClientGate, Run--> coordinator --Worker, Share--> worker
#   client <------Events------- coordinator <-----Events------ worker
#
# A message holds at most 8 MiB; what is larger (a plan, a part of a variable, a batch, a result) comes in chunks of
# 1 MiB whose first one declares the whole size. Interfaces are plain: no calls on promised capabilities. An error is a
# `failure` in the answer; an exception of the RPC itself means that the connection is gone.
# Fields are only ever added; a number is never used again.
@0xae7d03f63b001115;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("sluice::cluster_wire");

# An sluice::Error on its way. Empty message: none.
struct Failure {
  code @0 :UInt8;
  message @1 :Text;
  file @2 :Text;
  line @3 :Int32;
  next @4 :Text;
  lostProcess @5 :Int32 = -1;  # set: a consequence, seen by a transport: that process cannot be reached
  consequence @6 :Bool;        # of something that is told apart, or of an unknown process's loss
}

# A piece of a dense row-major array.
struct Chunk {
  name @0 :Text;
  dtype @1 :UInt8;
  dims @2 :List(Int64);
  totalBytes @3 :UInt64;
  offset @4 :UInt64;
  data @5 :Data;
}

# What a client asks of the floors of its run. Which fields count: cluster/messages.h.
struct Command {
  kind @0 :UInt8;
  name @1 :Text;
  ranks @2 :List(Int32);
  number @3 :Int64;
  extents @4 :List(Int64);
  chunks @5 :List(Chunk);
  last @6 :Bool;
}

struct Count {
  name @0 :Text;
  value @1 :Int64;
}

struct Reply {
  failure @0 :Failure;
  number @1 :Int64;
  extents @2 :List(Int64);
  chunk @3 :Chunk;
  counts @4 :List(Int64);
  aliveMax @5 :List(Count);
  fired @6 :List(Count);
}

# What a floor tells its client.
struct Event {
  kind @0 :UInt8;
  failure @1 :Failure;
  text @2 :Text;
  step @3 :Int64;
  batch @4 :Int64;
  chunks @5 :List(Chunk);
  last @6 :Bool;
}

struct Plugin {
  path @0 :Text;
  hash @1 :Text;
}

# What the client wants to run. The plan itself follows in chunks.
struct Request {
  name @0 :Text;
  ranks @1 :Int32;
  planBytes @2 :UInt64;
  planHash @3 :UInt64;
  plugins @4 :List(Plugin);
  threads @5 :Int32;  # of each device's team; 0: the worker chooses
  delaySeed @6 :UInt64;
  watchdogMs @7 :Int64;
}

# One worker's part of it.
struct Setup {
  request @0 :Request;
  run @1 :UInt64;
  key @2 :Data;
  process @3 :Int32;
  processOfRank @4 :List(Int32);
  hostOfProcess @5 :List(Text);
  workersOnHost @6 :Int32;  # processes that share this host's cores, in this run or not
  silenceMs @7 :Int32;
}

struct Addresses {
  shm @0 :Data;
  ucx @1 :Data;
}

struct WorkerInfo {
  number @0 :Int32;
  host @1 :Text;
  pid @2 :Int64;
  devices @3 :Int32;
  runs @4 :Int32;
  ranks @5 :Int32;
}

struct Started {
  failure @0 :Failure;
  rows @1 :Int64;
  processOfRank @2 :List(Int32);
}

interface Events {
  tell @0 (event :Event) -> ();
}

# ---- a worker's side

interface Share {
  plan @0 (data :Data) -> ();  # in order
  prepare @1 () -> (failure :Failure, addresses :Addresses);
  connect @2 (addresses :List(Addresses)) -> (failure :Failure, rows :Int64);
  run @3 (command :Command) -> (reply :Reply);
  end @4 () -> ();  # returns when floor and transports are gone
}

interface Worker {
  ping @0 () -> ();
  setUp @1 (setup :Setup, events :Events) -> (share :Share);
  dismiss @2 () -> ();
}

# ---- the coordinator's side

interface WorkerGate {
  ping @0 () -> ();
  join @1 (info :WorkerInfo, worker :Worker) -> (failure :Failure, number :Int32);
  leave @2 () -> ();
}

interface Run {
  plan @0 (data :Data) -> ();
  begin @1 () -> (started :Started);
  # To one process, or to all (-1) but one.
  run @2 (to :Int32, but :Int32 = -1, command :Command) -> (replies :List(Reply));
  end @3 () -> ();
}

interface Caller {
  ping @0 () -> ();
}

# ---- submitted jobs (cluster/jobs.h)

struct PartBytes {
  part @0 :UInt8;
  bytes @1 :Int64;
}

struct JobCall {
  kind @0 :UInt8;
  id @1 :Int64;
  part @2 :UInt8;
  offset @3 :Int64;
  name @4 :Text;
  steps @5 :Int64;
  bytes @6 :List(PartBytes);
  data @7 :Data;
}

struct JobStatus {
  id @0 :Int64;
  name @1 :Text;
  state @2 :UInt8;
  why @3 :Text;
  devices @4 :Int64;
  exitCode @5 :Int32;
  submittedS @6 :Int64;
  endedS @7 :Int64;
  logBytes @8 :Int64;
  resultBytes @9 :Int64;
}

struct JobReply {
  failure @0 :Failure;
  id @1 :Int64;
  jobs @2 :List(JobStatus);
  data @3 :Data;
  last @4 :Bool;
}

interface ClientGate {
  ping @0 () -> ();
  join @1 (client :Caller) -> (silenceMs :Int32);
  start @2 (request :Request, events :Events) -> (failure :Failure, run :Run);
  workers @3 () -> (workers :List(WorkerInfo));
  job @4 (call :JobCall) -> (reply :JobReply);
}
