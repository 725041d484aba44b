// SPDX-License-Identifier: Apache-2.0
// What coordinator, worker and client need of Cap'n Proto: a connection that notices a silent peer, and the values of
// messages.h as messages.
// Everything read from a message is checked: a count, a kind, a size. What is wrong throws Error or kj::Exception,
// which the caller of the call gets. Thread rule: the loop's thread.
#pragma once
#include <capnp/rpc-twoparty.h>
#include <capnp/rpc.h>

#include "launcher/cluster/jobs.h"
#include "launcher/cluster/loop.h"
#include "launcher/cluster/messages.h"
#include "launcher/wire.capnp.h"

namespace sluice {

namespace wire = cluster_wire;

// ---- connections

class Link {
 public:
  using Ping = std::function<kj::Promise<void>()>;

  // Serves `bootstrap` to the peer, where there is one. The socket is the link's.
  Link(kj::AsyncIoContext& io, int fd, kj::Maybe<capnp::Capability::Client> bootstrap);
  capnp::Capability::Client bootstrap();  // the peer's
  // Resolves when the peer is gone or has not answered `ping` for so long: with why, "is gone" say.
  kj::Promise<std::string> lost(Ping ping, int silence_ms_max);

 private:
  kj::Promise<std::string> beat();

  kj::Timer& timer_;
  kj::Own<kj::AsyncIoStream> stream_;
  capnp::TwoPartyVatNetwork network_;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpc_;
  Ping ping_;
  std::chrono::milliseconds silence_{0};
  std::chrono::steady_clock::time_point heard_, beaten_;
  bool asked_ = false;
  kj::Canceler asking_;
};

// ---- values

void put(wire::Failure::Builder to, const Failure& failure);
std::optional<Failure> failure_of(wire::Failure::Reader from);
void put(wire::Command::Builder to, const Command& command);
Command command_of(wire::Command::Reader from);
void put(wire::Reply::Builder to, const Reply& reply);
Reply reply_of(wire::Reply::Reader from);
void put(wire::Event::Builder to, const RunEvent& event);
RunEvent event_of(wire::Event::Reader from);
void put(wire::Request::Builder to, const Request& request);
Request request_of(wire::Request::Reader from);
void put(wire::Setup::Builder to, const Setup& setup);
Setup setup_of(wire::Setup::Reader from);
void put(wire::Addresses::Builder to, const Addresses& addresses);
Addresses addresses_of(wire::Addresses::Reader from);
void put(wire::WorkerInfo::Builder to, const WorkerInfo& info);
WorkerInfo worker_of(wire::WorkerInfo::Reader from);
void put(wire::JobCall::Builder to, const JobCall& call);
JobCall job_call_of(wire::JobCall::Reader from);
void put(wire::JobReply::Builder to, const JobReply& reply);
JobReply job_reply_of(wire::JobReply::Reader from);

kj::ArrayPtr<const kj::byte> bytes_of(const std::vector<std::byte>& bytes);
std::vector<std::byte> vector_of(capnp::Data::Reader bytes);
int64_t size_of(const std::vector<Chunk>& chunks);

// An exception of the RPC, as one sentence for people.
std::string text_of(const kj::Exception& exception);

// Runs `f`, which may throw Error, where only kj's exceptions may pass.
template <class F>
auto guarded(F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    kj::throwFatalException(KJ_EXCEPTION(FAILED, error.what()));
  }
}

}  // namespace sluice
