// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "launcher/cluster/frames.h"
#include "launcher/cluster/rpc.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// Under the RPC's own limit (messages.h), so that only a peer that ignores that is ever paused.
constexpr size_t flow_words_max = (32 << 20) / 8;
constexpr int nesting_max = 32;

class CheckedStream final : public kj::AsyncIoStream {
 public:
  explicit CheckedStream(kj::Own<kj::AsyncIoStream> inner) : inner_(kj::mv(inner)) {}

  kj::Promise<size_t> tryRead(void* buffer, size_t min, size_t max) override {
    return inner_->tryRead(buffer, min, max).then([this, buffer](size_t size) {
      if (!frames_.take({static_cast<const std::byte*>(buffer), size}))
        kj::throwFatalException(KJ_EXCEPTION(DISCONNECTED, "the peer sends no messages of ours"));
      return size;
    });
  }
  kj::Promise<void> write(const void* buffer, size_t size) override { return inner_->write(buffer, size); }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    return inner_->write(pieces);
  }
  kj::Promise<void> whenWriteDisconnected() override { return inner_->whenWriteDisconnected(); }
  void shutdownWrite() override { inner_->shutdownWrite(); }
  void abortRead() override { inner_->abortRead(); }
  void getsockopt(int level, int option, void* value, kj::uint* length) override {
    inner_->getsockopt(level, option, value, length);
  }

 private:
  kj::Own<kj::AsyncIoStream> inner_;
  FrameCheck frames_;
};

kj::Own<kj::AsyncIoStream> checked(kj::AsyncIoContext& io, int fd) {
  auto stream = io.lowLevelProvider->wrapSocketFd(fd, kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP |
                                                          kj::LowLevelAsyncIoProvider::ALREADY_CLOEXEC |
                                                          kj::LowLevelAsyncIoProvider::ALREADY_NONBLOCK);
  int on = 1;
  stream->setsockopt(IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return kj::heap<CheckedStream>(kj::mv(stream));
}

capnp::ReaderOptions limits() {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = FrameCheck::message_bytes_max / 8;
  options.nestingLimit = nesting_max;
  return options;
}

capnp::RpcSystem<capnp::rpc::twoparty::VatId> system_of(capnp::TwoPartyVatNetwork& network,
                                                        kj::Maybe<capnp::Capability::Client>& bootstrap) {
  KJ_IF_MAYBE (offered, bootstrap) {
    return capnp::makeRpcServer(network, kj::mv(*offered));
  }
  return capnp::makeRpcClient(network);
}

}  // namespace

Link::Link(kj::AsyncIoContext& io, int fd, kj::Maybe<capnp::Capability::Client> bootstrap)
    : timer_(io.provider->getTimer()),
      stream_(checked(io, fd)),
      network_(*stream_, bootstrap == nullptr ? capnp::rpc::twoparty::Side::CLIENT : capnp::rpc::twoparty::Side::SERVER,
               limits()),
      rpc_(system_of(network_, bootstrap)) {
  rpc_.setFlowLimit(flow_words_max);
}

capnp::Capability::Client Link::bootstrap() {
  capnp::MallocMessageBuilder message(8);
  auto peer = message.initRoot<capnp::rpc::twoparty::VatId>();
  peer.setSide(capnp::rpc::twoparty::Side::SERVER);
  return rpc_.bootstrap(peer);
}

kj::Promise<std::string> Link::lost(Ping ping, int silence_ms_max) {
  ping_ = std::move(ping);
  silence_ = std::chrono::milliseconds(silence_ms_max);
  heard_ = beaten_ = Clock::now();
  auto gone = network_.onDisconnect().then([] { return std::string("is gone"); },
                                           [](kj::Exception&&) { return std::string("is gone"); });
  return gone.exclusiveJoin(beat());
}

kj::Promise<std::string> Link::beat() {
  auto now = Clock::now();
  // We were stopped ourselves: what the peer said meanwhile is not read yet.
  if (now - beaten_ > silence_ / 2) heard_ = now;
  beaten_ = now;
  if (now - heard_ > silence_) return fmt::format("has said nothing for {:.1f} s", double(silence_.count()) / 1000);
  if (!asked_) {
    asked_ = true;
    // If it fails, the connection is gone, which is noticed elsewhere.
    asking_.wrap(ping_()).then([this] { heard_ = Clock::now(), asked_ = false; }).detach([](kj::Exception&&) {});
  }
  return timer_.afterDelay(silence_.count() / 6 * kj::MILLISECONDS).then([this] { return beat(); });
}

}  // namespace sluice
