// SPDX-License-Identifier: Apache-2.0
// A stream: one device stream and the actors that fire on it, by key. It has an inbox for messages from elsewhere;
// inside the stream tokens pass by a call.
//
//   other streams, transport, client --post()--> inbox --turn()--> ports --> ready actors (bitmap by key) --> fire
//
// Invariants: `scheduled_` is true from the wake-up to the end of the turn, so a stream is never in two hands; a
// message that is posted before the turn's last look at the inbox is handled in it, any later one wakes the stream.
// Thread rule: post() from any thread; turn() from one thread at a time (the host's).
#pragma once
#include <mutex>
#include <vector>

#include "actors/body.h"
#include "actors/ready.h"

namespace sluice {

class Stream {
 public:
  Stream(World& world, int rank, std::string name) : rank(rank), name(std::move(name)), world_(world) {}

  void post(const Message& message);
  bool turn(int firings_max);  // true: there is more to do, call again
  // The host's, after a turn with nothing more to do. False: forget the stream until it is woken.
  bool rest();
  void tell_if_caught_up();  // wakes a client that waits for idleness
  bool has_mail() const { return any_.load(std::memory_order_acquire); }

  void seal();  // actors are complete: ready ones are found
  void mark_ready(const Actor& actor) { ready_.set(actor.place); }
  // The report of a stall, written by the stream's own thread.
  struct Report {
    struct Ports {
      const Actor* actor;
      std::vector<InPort> in;
      std::vector<OutPort> out;
    };
    bool done = false;
    std::vector<Ports> actors;
  };
  Report take_report();

  const int rank;
  const std::string name;
  std::unique_ptr<DeviceStream> device;
  std::vector<Actor*> actors;                 // by (key, id)
  std::atomic<const Actor*> firing{nullptr};  // for the watchdog
  std::atomic<int64_t> messages{0};
  void* hosted = nullptr;  // the host's own

 private:
  // The path of a firing is inline within stream.cc.
  bool caught_up() const;  // its actors fired all that the client opened the gates for
  void drain_inbox();
  void handle(const Message& message);
  inline void fire(Actor& actor);
  void begin_step(Firing& now);
  inline bool ready_to_run(Actor& actor);
  inline void run(Actor& actor);
  inline bool complete(Actor& actor);
  inline void finish(Actor& actor);
  inline void acquire(Actor& actor, uint32_t out);
  inline void give_back(Actor& actor, uint32_t in);
  inline void publish(Actor& actor, uint32_t out);
  inline void deliver(const Tap& tap, Register& reg, uint32_t slot);
  inline void send(Stream& to, const Message& message);
  void flush();
  inline void credit(Actor& producer, uint32_t out, uint32_t slot);
  void wait_for_inputs(Actor& actor);
  void wait_on_host(Actor& actor, EventPtr event, Actor::Phase phase);
  void fail(Actor& actor);
  void stop();
  void write_report();

  World& world_;
  Ready ready_;
  EventPtr recorded_;  // of the firing that ends now (asynchronous devices)
  std::vector<Message> taken_;
  std::vector<std::pair<Stream*, Message>> outgoing_;  // of the firing that ends now
  // What senders touch lies together, apart from what the stream's own thread works on.
  alignas(64) std::mutex mutex_;  // guards inbox_ and report_
  std::atomic<bool> any_{false};  // inbox_ is not empty
  std::atomic<bool> scheduled_{false};
  std::vector<Message> inbox_;
  Report report_;
};

}  // namespace sluice
