// SPDX-License-Identifier: Apache-2.0
// What other threads call; engine.h is the progress thread's.
#include "comm/ucx/ucx.h"

#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "comm/ucx/engine.h"
#include "comm/wire_table.h"

namespace sluice {

namespace ucx {

namespace {

class Ucx final : public UcxTransport {
 public:
  Ucx(const ProcessGroup& group, const std::string& interface, const UcxOptions& options)
      : group_(group), options_(options), engine_(group, interface, options, ends_) {}
  ~Ucx() override { close(); }
  std::string_view name() const override { return "ucx"; }
  bool in_place() const override { return false; }
  std::string address() const override { return engine_.address(); }
  void connect(const std::vector<std::string>& addresses) override { engine_.connect(addresses); }

  void open_sender(const Wire& wire, std::function<void(uint32_t)> on_release) override {
    std::lock_guard lock(opening_);
    check_new(wire, wire.from_rank, "sent from");
    ends_.out.add(std::make_unique<OutWire>(wire, process_of(wire.to_rank), std::move(on_release)));
  }

  void open_receiver(const Wire& wire, std::function<void(const Arrival&)> on_arrival) override {
    std::lock_guard lock(opening_);
    check_new(wire, wire.to_rank, "received in");
    ends_.in.add(
        std::make_unique<InWire>(wire, process_of(wire.from_rank), options_.chunk_bytes, std::move(on_arrival)));
  }

  void send(uint32_t wire, uint32_t slot, const SlotHeader& header, const std::byte* data, size_t bytes,
            const EventPtr& event) override {
    OutWire& out = sender(wire, bytes, event);
    if (closed_.load()) return;
    check(slot < out.wire.slots && !out.slots[slot].busy.exchange(true), "a slot is sent without a credit");
    bytes_sent_.fetch_add(int64_t(bytes), std::memory_order_relaxed);
    Transfer& transfer = out.slots[slot].transfer;
    transfer.words = words_of(header);
    transfer.data = data;
    transfer.bytes = bytes;
    engine_.push(transfer);
  }

  void release(uint32_t wire, uint32_t slot) override {
    InWire* in = ends_.in.find(wire);
    check(in, "a wire is used before it is open");
    if (!closed_.load()) engine_.push(in->give_back(slot));
  }

  void refresh(uint32_t wire, uint32_t slot, const SlotHeader& header, const std::byte* data, size_t bytes) override {
    OutWire& out = sender(wire, bytes, nullptr);
    check(slot < out.wire.slots, "a slot is refreshed that the wire does not have");
    auto refresh = std::make_shared<Refresh>();
    refresh->wire = &out;
    refresh->slot = slot;
    refresh->words = words_of(header);
    refresh->data = data;
    refresh->bytes = bytes;
    refresh->self = refresh;
    std::string why = engine_.push_unless_closed(*refresh) ? refresh->wait() : "the transport is closed";
    refresh->self.reset();
    if (!why.empty()) throw Error(Code::failed, text_of(out.wire) + " could not be refreshed: " + why);
  }

  void close() override {
    closed_.store(true);
    engine_.close();
  }

  int64_t bytes_sent() const override { return bytes_sent_.load(std::memory_order_relaxed); }
  int64_t dropped() const override { return engine_.dropped(); }

 private:
  OutWire& sender(uint32_t wire, size_t bytes, const EventPtr& event) {
    OutWire* out = ends_.out.find(wire);
    check(out, "a wire is used before it is open");
    check(bytes <= out->wire.bytes_max, "more is sent than a slot of the wire holds");
    check(!event || event->done(), "data that a device still writes is sent between processes");
    return *out;
  }

  int process_of(int rank) const {
    return rank < 0 || size_t(rank) >= group_.process_of_rank.size() ? -1 : group_.process_of_rank[size_t(rank)];
  }

  void check_new(const Wire& wire, int near_rank, const char* what) {
    int from = process_of(wire.from_rank), to = process_of(wire.to_rank);
    if (closed_.load()) throw Error(Code::failed, text_of(wire) + " is opened on a closed transport");
    if (wire.slots == 0) throw Error(Code::value, text_of(wire) + " has no slots, so nothing could ever be sent");
    if (from < 0 || to < 0) throw Error(Code::value, text_of(wire) + " has a rank that no process holds");
    if (process_of(near_rank) != group_.process || from == to)
      throw Error(Code::value, text_of(wire) + " is not " + what + " this process, or does not leave it");
    int other = from == group_.process ? to : from;
    if (!engine_.reaches(other))
      throw Error(Code::value, text_of(wire) + " leads to a process that UCX is not connected to");
    if (ends_.out.find(wire.id) || ends_.in.find(wire.id))
      throw Error(Code::value, text_of(wire) + " is opened twice: its id is taken");
  }

  const ProcessGroup group_;
  const UcxOptions options_;
  std::mutex opening_;
  WireEnds ends_;
  std::atomic<bool> closed_{false};
  std::atomic<int64_t> bytes_sent_{0};
  Engine engine_;
};

}  // namespace

}  // namespace ucx

std::unique_ptr<UcxTransport> make_ucx(const ProcessGroup& group, const std::string& interface,
                                       const UcxOptions& options) {
  return std::make_unique<ucx::Ucx>(group, interface, options);
}

std::unique_ptr<ProcessTransport> make_ucx(const ProcessGroup& group, const std::string& interface) {
  return make_ucx(group, interface, {});
}

}  // namespace sluice
