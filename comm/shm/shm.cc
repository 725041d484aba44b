// SPDX-License-Identifier: Apache-2.0
// The transport between processes of one host: what is sent lies in the sender's arena, which the others map, and a
// doorbell with the slot's header tells where. Nothing is copied.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>

#include "base/error.h"
#include "comm/shm/handshake.h"
#include "comm/shm/listener.h"
#include "comm/shm/peer.h"
#include "comm/wire_table.h"

namespace sluice {

namespace shm {
namespace {

struct Sender {
  Wire wire;
  Peer& peer;
  std::function<void(uint32_t)> on_release;
  std::vector<std::atomic<bool>> busy;  // per slot: sent and not yet released
  Sender(const Wire& w, Peer& p, std::function<void(uint32_t)> f)
      : wire(w), peer(p), on_release(std::move(f)), busy(w.slots) {}
};
struct Receiver {
  Wire wire;
  Peer& peer;
  std::function<void(const Arrival&)> on_arrival;
  std::vector<std::atomic<bool>> held;  // per slot: arrived and not yet released
  Receiver(const Wire& w, Peer& p, std::function<void(const Arrival&)> f)
      : wire(w), peer(p), on_arrival(std::move(f)), held(w.slots) {}
};

bool makes_sense(const SlotHeader& header) {
  return header.micro_batches >= 1 && header.micro_batch >= 0 && header.micro_batch < header.micro_batches &&
         header.bytes_valid >= 0 &&
         std::all_of(header.extent.begin(), header.extent.end(), [](auto e) { return e >= 0; });
}

class Shm final : public ProcessTransport {
 public:
  explicit Shm(const ProcessGroup& group) : group_(group), door_(open_door()), address_(door_.name) {
    if (group.process < 0 || group.process >= group.processes)
      throw Error(Code::value, "process " + std::to_string(group.process) + " is not among the " +
                                   std::to_string(group.processes) + " of the run");
  }
  ~Shm() override { close(); }

  std::string_view name() const override { return "shm"; }
  bool in_place() const override { return true; }
  HostMemory* memory() override { return &arena_; }
  std::string address() const override { return address_; }

  void connect(const std::vector<std::string>& addresses) override;
  void open_sender(const Wire& wire, std::function<void(uint32_t)> on_release) override;
  void open_receiver(const Wire& wire, std::function<void(const Arrival&)> on_arrival) override;
  void send(uint32_t wire, uint32_t slot, const SlotHeader& header, const std::byte* data, size_t bytes,
            const EventPtr& event) override;
  void release(uint32_t wire, uint32_t slot) override;
  void refresh(uint32_t wire, uint32_t slot, const SlotHeader& header, const std::byte* data, size_t bytes) override;
  bool poll() override { return listener_.poll(); }
  void spin(bool begins) override { listener_.spin(begins); }
  void close() override;
  int64_t bytes_sent() const override;

 private:
  Peer& peer_of(const Wire& wire, int here, int there);
  const char* answer(Peer& peer, const Doorbell& bell, const std::byte* data);
  const char* arrive(Peer& peer, const Doorbell& bell, const std::byte* data);
  const char* released(Peer& peer, const Doorbell& bell);
  const char* refreshed(Peer& peer, const Doorbell& bell);
  void wake_refreshing();

  const ProcessGroup group_;
  Door door_;
  const std::string address_;
  Arena arena_;
  std::vector<std::unique_ptr<Peer>> peers_;  // all that were met; fixed once connected
  std::vector<Peer*> peer_of_process_;
  std::atomic<bool> connected_{false}, closed_{false};

  std::mutex opening_;
  WireTable<Sender> senders_;
  WireTable<Receiver> receivers_;

  std::mutex refreshing_;
  std::condition_variable refreshed_;
  std::set<std::pair<int, uint64_t>> unanswered_;  // (process, ticket)
  uint64_t tickets_ = 0;

  Listener listener_{group_, [this] { wake_refreshing(); }};
};

// ---- meeting, opening -----------------------------------------------------------------------------------------------

void Shm::connect(const std::vector<std::string>& addresses) {
  check(!connected_, "connect() is called once");
  if (closed_) throw Error(Code::failed, "a closed transport connects to nobody");
  if (addresses.size() != size_t(group_.processes))
    throw Error(Code::value, "there are " + std::to_string(group_.processes) + " processes and " +
                                 std::to_string(addresses.size()) + " addresses");
  peer_of_process_.resize(size_t(group_.processes));
  for (int p = 0; p < group_.processes; ++p) {
    if (p == group_.process || addresses[size_t(p)].empty()) continue;
    peers_.push_back(std::make_unique<Peer>(
        p, make_shared_memory("sluice-page", sizeof(Page)), arena_,
        [this](Peer& peer, const Doorbell& bell, const std::byte* data) { return answer(peer, bell, data); },
        [this] { listener_.wake(); }));
    peer_of_process_[size_t(p)] = peers_.back().get();
  }
  auto page_for = [&](int process) { return peer_of_process_[size_t(process)]->page_fd(); };
  std::chrono::milliseconds limit(2LL * group_.silence_ms_max);
  for (Met& met : meet(group_, std::move(door_), addresses, page_for, limit)) {
    Peer& peer = *peer_of_process_[size_t(met.process)];
    if (!peer.meet(std::move(met.socket), std::move(met.page)))
      throw Error(Code::failed, "process " + std::to_string(met.process) + " shares no memory");
  }
  connected_ = true;
  std::vector<Peer*> met;
  for (auto& peer : peers_) met.push_back(peer.get());
  listener_.start(std::move(met));
}

Peer& Shm::peer_of(const Wire& wire, int here, int there) {
  auto process = [&](int rank) {
    if (rank < 0 || size_t(rank) >= group_.process_of_rank.size())
      throw Error(Code::value, text_of(wire) + " names a rank that the run has not");
    return group_.process_of_rank[size_t(rank)];
  };
  if (closed_) throw Error(Code::failed, text_of(wire) + " is opened on a closed transport");
  if (wire.slots == 0) throw Error(Code::value, text_of(wire) + " has no slots, so nothing could ever be sent");
  int other = process(there);
  if (process(here) != group_.process) throw Error(Code::value, text_of(wire) + " ends in another process");
  if (other < 0 || size_t(other) >= peer_of_process_.size() || !peer_of_process_[size_t(other)])
    throw Error(Code::value, text_of(wire) + " leads to a process that is not reached through shared memory");
  return *peer_of_process_[size_t(other)];
}

void Shm::open_sender(const Wire& wire, std::function<void(uint32_t)> on_release) {
  std::lock_guard lock(opening_);
  Peer& peer = peer_of(wire, wire.from_rank, wire.to_rank);
  if (senders_.find(wire.id)) throw Error(Code::value, text_of(wire) + " is opened twice: its id is taken");
  senders_.add(std::make_unique<Sender>(wire, peer, std::move(on_release)));
}

void Shm::open_receiver(const Wire& wire, std::function<void(const Arrival&)> on_arrival) {
  std::lock_guard lock(opening_);
  Peer& peer = peer_of(wire, wire.to_rank, wire.from_rank);
  if (receivers_.find(wire.id)) throw Error(Code::value, text_of(wire) + " is opened twice: its id is taken");
  receivers_.add(std::make_unique<Receiver>(wire, peer, std::move(on_arrival)));
}

// ---- sending --------------------------------------------------------------------------------------------------------

void Shm::send(uint32_t wire, uint32_t slot, const SlotHeader& header, const std::byte* data, size_t bytes,
               const EventPtr& event) {
  Sender* sender = senders_.find(wire);
  check(sender, "a wire is used before its end is open");
  check(bytes <= sender->wire.bytes_max, "more is sent than a slot of the wire holds");
  if (closed_) return;
  check(slot < sender->wire.slots && !sender->busy[slot].exchange(true), "a slot is sent without a credit");
  if (event) event->wait();  // another process knows nothing of our devices
  sender->peer.ring({.kind = Kind::arrival, .wire = wire, .slot = slot, .bytes = bytes, .header = header}, data);
}

void Shm::release(uint32_t wire, uint32_t slot) {
  Receiver* receiver = receivers_.find(wire);
  check(receiver, "a wire is used before its end is open");
  if (closed_) return;
  check(slot < receiver->wire.slots && receiver->held[slot].exchange(false), "a slot is released that was not sent");
  receiver->peer.ring({.kind = Kind::release, .wire = wire, .slot = slot});
}

void Shm::refresh(uint32_t wire, uint32_t slot, const SlotHeader& header, const std::byte* data, size_t bytes) {
  Sender* sender = senders_.find(wire);
  check(sender, "a wire is used before its end is open");
  check(slot < sender->wire.slots && bytes <= sender->wire.bytes_max, "more is sent than a slot of the wire holds");
  Peer& peer = sender->peer;
  std::unique_lock lock(refreshing_);
  std::pair key{peer.process(), ++tickets_};
  unanswered_.insert(key);
  lock.unlock();
  peer.ring({.kind = Kind::refresh, .wire = wire, .slot = slot, .bytes = bytes, .ticket = key.second, .header = header},
            data);
  lock.lock();
  refreshed_.wait(lock, [&] { return !unanswered_.contains(key) || !peer.here() || closed_; });
  if (unanswered_.erase(key) > 0)
    throw Error(Code::failed, "a slot of " + text_of(sender->wire) +
                                  " cannot be replaced: " + (peer.here() ? "this side is closed" : peer.gone_text()));
}

// ---- taking ---------------------------------------------------------------------------------------------------------

const char* Shm::answer(Peer& peer, const Doorbell& bell, const std::byte* data) {
  switch (bell.kind) {
    case Kind::arrival:
    case Kind::refresh: return arrive(peer, bell, data);
    case Kind::release: return released(peer, bell);
    case Kind::refreshed: return refreshed(peer, bell);
  }
  return "it rings a doorbell of no known kind";
}

const char* Shm::arrive(Peer& peer, const Doorbell& bell, const std::byte* data) {
  Receiver* receiver = receivers_.find(bell.wire);
  if (!receiver || &receiver->peer != &peer) return "it sends on a wire that does not come from it";
  if (bell.slot >= receiver->wire.slots) return "it sends a slot that its wire has not";
  if (bell.bytes > receiver->wire.bytes_max) return "it sends more than a slot of its wire holds";
  if (!makes_sense(bell.header)) return "it sends a header that makes no sense";
  bool refresh = bell.kind == Kind::refresh;
  if (!refresh && receiver->held[bell.slot].exchange(true)) return "it sends a slot that was not given back";
  receiver->on_arrival({bell.header, bell.slot, data, nullptr, refresh});
  if (refresh) peer.ring({.kind = Kind::refreshed, .wire = bell.wire, .slot = bell.slot, .ticket = bell.ticket});
  return nullptr;
}

const char* Shm::released(Peer& peer, const Doorbell& bell) {
  Sender* sender = senders_.find(bell.wire);
  if (!sender || &sender->peer != &peer) return "it gives back a slot of a wire that does not lead to it";
  if (bell.slot >= sender->wire.slots || !sender->busy[bell.slot].exchange(false))
    return "it gives back a slot that was not sent";
  sender->on_release(bell.slot);
  return nullptr;
}

void Shm::wake_refreshing() {
  std::lock_guard lock(refreshing_);
  refreshed_.notify_all();
}

const char* Shm::refreshed(Peer& peer, const Doorbell& bell) {
  std::lock_guard lock(refreshing_);
  if (unanswered_.erase({peer.process(), bell.ticket}) == 0) return "it answers what nobody asked";
  refreshed_.notify_all();
  return nullptr;
}

// ---- the end -------------------------------------------------------------------------------------------------------

void Shm::close() {
  if (closed_.exchange(true)) return;
  listener_.stop();
  for (auto& peer : peers_) peer->close();  // waits for callbacks on other threads
  wake_refreshing();
  door_ = {};
}

int64_t Shm::bytes_sent() const {
  int64_t sum = 0;
  if (connected_)
    for (auto& peer : peers_) sum += peer->bytes_sent();
  return sum;
}

}  // namespace
}  // namespace shm

std::unique_ptr<ProcessTransport> make_shm(const ProcessGroup& group) { return std::make_unique<shm::Shm>(group); }

}  // namespace sluice
