// SPDX-License-Identifier: Apache-2.0
// The progress thread: it alone touches UCX, peers and what is under way.
//
//   other threads --inbox--> tasks --> Outgoing, a chunk of each wire in turn --> Port --> network
//   callbacks <-- InWire, in order <-- admitted by header <------------------------ Port <-- network
//
// Control goes to UCX at once and data only up to a window, so control never waits behind more than that window.
// A peer is lost when its end-point breaks, when it says nothing for too long, or when it breaks the protocol;
// one that says bye is none of these.
// Invariants: nothing of a peer counts before its proof; after the loss of a peer nothing of it counts any more.
// Thread rule: push(), push_unless_closed(), connect(), close(), reaches() and dropped() from any thread.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/ucx/handshake.h"
#include "comm/ucx/incoming.h"
#include "comm/ucx/outgoing.h"
#include "comm/ucx/port.h"
#include "comm/ucx/ucx.h"
#include "comm/wire_table.h"

namespace sluice::ucx {

struct WireEnds {
  WireTable<OutWire> out;
  WireTable<InWire> in;
};

// Records that are used again; they live until the end.
template <class T>
class Pool {
 public:
  T& take() {
    if (free_.empty()) free_.push_back(&all_.emplace_back());
    T* item = free_.back();
    free_.pop_back();
    return *item;
  }
  void give(T& item) { free_.push_back(&item); }

 private:
  std::deque<T> all_;
  std::vector<T*> free_;
};

class Engine final : public PortUser {
 public:
  Engine(const ProcessGroup& group, const std::string& interface, const UcxOptions& options, WireEnds& ends);
  ~Engine() override { close(); }

  std::string address() const { return address_; }
  void connect(const std::vector<std::string>& addresses);
  bool reaches(int process) const;
  void push(Task& task) { inbox_.push(task); }  // after close() nobody takes it
  bool push_unless_closed(Task& task);          // true: it will be taken
  void close();
  int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer;
  // A message that UCX holds.
  struct Post : PortTicket {
    Peer* peer = nullptr;
    FirstHeader header;
    std::vector<std::byte> text;   // of control
    Transfer* transfer = nullptr;  // of data
    uint64_t bytes = 0;
  };
  // Bytes on their way into a slot.
  struct Landing : PortTicket {
    Peer* peer = nullptr;
    InWire* wire = nullptr;
    InSlot* slot = nullptr;
    MessageHeader header;
    const std::byte* at = nullptr;
  };
  struct Peer {
    Peer(const ProcessGroup& group, int p, uint64_t chunk_bytes) : process(p), shake(group, p), out(chunk_bytes) {}
    const int process;
    Handshake shake;
    std::vector<Nonce> early_hellos;  // that came before connect()
    int hellos = 0;
    ucp_ep_h endpoint = nullptr;
    bool proved = false, lost = false, failed = false;
    bool left = false;   // closed in good order
    std::string broken;  // why it is to be lost
    Outgoing out;
    std::vector<CreditWords> credits;
    uint64_t flying_bytes = 0, flying = 0;
    uint64_t pings = 0, last_ping = 0;
    int silent_ticks = 0;
    bool dirty = false;
  };

  // What the port tells.
  Place arrived(std::span<const std::byte> header, const std::byte* data, size_t bytes) override;
  void landed(PortTicket& ticket, const char* error) override;
  void sent(PortTicket& ticket, const char* error) override;
  void broken(int process, const char* why) override;

  // The thread.
  void run();
  bool take_tasks();
  void begin_connect();
  void touch(Peer& peer);
  bool flush_dirty();
  void flush(Peer& peer);
  void tick();
  void sleep(Clock::time_point until);
  void lose(Peer& peer);
  void fail(Peer& peer);
  bool lose_broken();
  void say_bye();
  void shut();

  Peer* peer_of(uint32_t process) { return process < peers_.size() ? peers_[process].get() : nullptr; }
  Place drop();
  void on_hello(Peer& peer, const std::byte* data, size_t bytes);
  void on_proof(Peer& peer, const std::byte* data, size_t bytes);
  Place on_data(Peer& peer, const FirstHeader& header, bool first, const std::byte* data, size_t bytes);
  void on_credits(Peer& peer, const std::byte* data, size_t bytes);
  void on_refreshed(Peer& peer, const MessageHeader& header);
  void on_bye(Peer& peer, Kind kind);
  void finish_chunk(Peer& peer, InWire& wire, InSlot& slot);
  void send_control(Peer& peer, Kind kind, const void* text, size_t bytes, const MessageHeader& fields = {});
  void send_chunk(Peer& peer, const Chunk& chunk);
  void seal(Post& post, bool first);
  void breaks(Peer& peer, std::string why);

  const ProcessGroup group_;
  const UcxOptions options_;
  WireEnds& ends_;
  std::string address_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by process; null: this one
  Pool<Post> posts_;
  Pool<Landing> landings_;
  std::vector<Peer*> dirty_, broken_;
  Clock::time_point next_tick_;
  Clock::duration tick_every_;
  bool stopping_ = false;
  std::atomic<int64_t> dropped_{0};

  Inbox inbox_;
  Task connect_task_{Task::What::connect}, stop_task_{Task::What::stop};
  std::mutex closing_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable connected_;
  std::vector<std::string> addresses_;
  bool connecting_ = false, connect_done_ = false, closed_ = false;
  std::string connect_failure_;
  std::vector<int> unproved_;

  std::unique_ptr<Port> port_;
  std::thread thread_;
};

}  // namespace sluice::ucx
