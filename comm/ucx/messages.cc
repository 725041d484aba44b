// SPDX-License-Identifier: Apache-2.0
// What goes in and out. All that comes in is checked here or in InWire and Outgoing before it changes anything.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "comm/ucx/engine.h"

namespace sluice::ucx {

namespace {

constexpr size_t credits_in_message_max = 256;
constexpr uint64_t flying_max = 1024;  // messages of data that UCX holds for one peer
constexpr int hellos_max = 64;         // of one process: nobody makes us compute proofs for ever
constexpr size_t early_hellos_max = 4;

}  // namespace

// ---- out

void Engine::seal(Post& post, bool first) {
  MessageHeader& header = post.header.message;
  header.run = group_.run;
  header.from = uint32_t(group_.process);
  header.session = post.peer->shake.session();
  header.header_sum = header_sum_of(header, first ? &post.header.slot : nullptr);
}

void Engine::send_control(Peer& peer, Kind kind, const void* text, size_t bytes, const MessageHeader& fields) {
  Post& post = posts_.take();
  auto* begin = static_cast<const std::byte*>(text);
  post.peer = &peer;
  post.transfer = nullptr;
  post.bytes = 0;
  post.text.assign(begin, begin + bytes);
  MessageHeader& header = post.header.message;
  header = fields;
  header.kind = kind;
  header.bytes = uint32_t(bytes);
  header.flags |= flag_payload_sum;
  header.payload_sum = sum_of(post.text.data(), bytes);
  seal(post, false);
  ++peer.flying;
  port_->send(peer.endpoint, {{reinterpret_cast<const std::byte*>(&post.header), sizeof(MessageHeader)}, post.text},
              post);
}

void Engine::flush(Peer& peer) {
  for (size_t done = 0; done < peer.credits.size();) {
    size_t count = std::min(credits_in_message_max, peer.credits.size() - done);
    send_control(peer, Kind::credits, peer.credits.data() + done, count * sizeof(CreditWords));
    done += count;
  }
  peer.credits.clear();
  while (peer.flying_bytes < options_.window_bytes && peer.flying < flying_max) {
    auto chunk = peer.out.next();
    if (!chunk) break;
    send_chunk(peer, *chunk);
  }
}

void Engine::send_chunk(Peer& peer, const Chunk& chunk) {
  Post& post = posts_.take();
  Transfer& transfer = *chunk.transfer;
  bool first = chunk.index == 0, sums = options_.payload_sum;
  const std::byte* data = transfer.data + chunk.offset;
  post.peer = &peer;
  post.transfer = &transfer;
  post.bytes = chunk.bytes;
  MessageHeader& header = post.header.message;
  header = {.sequence = transfer.sequence,
            .total = transfer.bytes,
            .wire = transfer.wire->wire.id,
            .slot = transfer.slot,
            .chunk = uint32_t(chunk.index),
            .bytes = uint32_t(chunk.bytes),
            .kind = Kind::data};
  if (transfer.what == Task::What::refresh) header.flags |= flag_refresh;
  if (sums) header.flags |= flag_payload_sum;
  header.payload_sum = sums ? sum_of(data, chunk.bytes) : 0;
  if (first) post.header.slot = transfer.words;
  seal(post, first);
  peer.flying_bytes += chunk.bytes;
  ++peer.flying;
  Port::Message message;
  message.header = {reinterpret_cast<const std::byte*>(&post.header),
                    first ? sizeof(FirstHeader) : sizeof(MessageHeader)};
  message.data = {data, chunk.bytes};
  message.rendezvous = chunk.bytes >= options_.rendezvous_bytes_min;
  port_->send(peer.endpoint, message, post);
}

void Engine::sent(PortTicket& ticket, const char* error) {
  Post& post = static_cast<Post&>(ticket);
  Peer& peer = *post.peer;
  --peer.flying;
  peer.flying_bytes -= post.bytes;
  if (post.transfer) peer.out.landed(*post.transfer);
  posts_.give(post);
  if (error) breaks(peer, std::string("its connection broke: ") + error);
  if (peer.lost && peer.flying == 0) fail(peer);
  if (peer.out.waits()) touch(peer);
}

void Engine::broken(int process, const char* why) {
  breaks(*peers_[size_t(process)], std::string("its connection broke: ") + why);
}

// ---- in

Engine::Place Engine::drop() {
  dropped_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Engine::Place Engine::arrived(std::span<const std::byte> head, const std::byte* data, size_t bytes) {
  bool first = head.size() == sizeof(FirstHeader);
  if (!first && head.size() != sizeof(MessageHeader)) return drop();
  FirstHeader header;
  std::memcpy(&header, head.data(), head.size());
  MessageHeader& message = header.message;
  if (message.header_sum != header_sum_of(message, first ? &header.slot : nullptr)) return drop();
  Peer* peer = message.run == group_.run ? peer_of(message.from) : nullptr;
  if (!peer || peer->lost) return drop();
  bool fits = message.bytes == bytes && (data || message.kind == Kind::data) &&
              (!first || message.kind == Kind::data) &&
              !(data && (message.flags & flag_payload_sum) && message.payload_sum != sum_of(data, bytes));
  if (message.kind == Kind::hello && fits) return on_hello(*peer, data, bytes), Place{};
  if (message.kind == Kind::proof && fits) return on_proof(*peer, data, bytes), Place{};
  if (!peer->proved || message.session != peer->shake.session()) return drop();
  peer->silent_ticks = 0;
  if (!fits) return breaks(*peer, "what it sent came damaged: payload and header differ"), Place{};
  if (message.kind == Kind::bye || message.kind == Kind::bye_heard) return on_bye(*peer, message.kind), Place{};
  if (stopping_ || peer->left) return drop();
  switch (message.kind) {
    case Kind::data: return on_data(*peer, header, first, data, bytes);
    case Kind::credits: on_credits(*peer, data, bytes); break;
    case Kind::refreshed: on_refreshed(*peer, message); break;
    case Kind::ping:
      if (message.sequence <= peer->last_ping) breaks(*peer, "it broke the protocol: a ping came twice");
      peer->last_ping = message.sequence;
      break;
    default: breaks(*peer, "it broke the protocol: a message of an unknown kind");
  }
  return {};
}

void Engine::on_hello(Peer& peer, const std::byte* data, size_t bytes) {
  if (bytes != sizeof(Nonce) || ++peer.hellos > hellos_max) {
    drop();
    return;
  }
  Nonce nonce;
  std::memcpy(nonce.data(), data, sizeof nonce);
  if (peer.endpoint) {
    Proof proof = peer.shake.answer(nonce);
    send_control(peer, Kind::proof, &proof, sizeof proof);
  } else if (peer.early_hellos.size() < early_hellos_max) {
    peer.early_hellos.push_back(nonce);
  }
}

void Engine::on_proof(Peer& peer, const std::byte* data, size_t bytes) {
  Proof proof;
  if (bytes != sizeof proof || peer.proved || !peer.endpoint) {
    drop();
    return;
  }
  std::memcpy(&proof, data, sizeof proof);
  if (!peer.shake.accept(proof)) {
    drop();
    return;
  }
  peer.proved = true;
  touch(peer);
  std::lock_guard lock(mutex_);
  std::erase(unproved_, peer.process);
  connect_done_ = unproved_.empty();
  if (connect_done_) connected_.notify_all();
}

Engine::Place Engine::on_data(Peer& peer, const FirstHeader& header, bool first, const std::byte* data, size_t bytes) {
  const MessageHeader& message = header.message;
  InWire* wire = ends_.in.find(message.wire);
  std::string why;
  InSlot* slot = nullptr;
  if (!wire || wire->peer != peer.process)
    why = "it sent for wire " + std::to_string(message.wire) + ", which does not come from it";
  else
    slot = wire->admit(message, first ? &header.slot : nullptr, why);
  if (!slot) {
    breaks(peer, "it broke the protocol: " + why);
    return {};
  }
  std::byte* to = wire->place_of(*slot, message);
  if (!data) {
    Landing& landing = landings_.take();
    landing.peer = &peer;
    landing.wire = wire;
    landing.slot = slot;
    landing.header = message;
    landing.at = to;
    return {to, &landing};
  }
  if (bytes > 0) std::memcpy(to, data, bytes);
  finish_chunk(peer, *wire, *slot);
  return {};
}

void Engine::landed(PortTicket& ticket, const char* error) {
  Landing& landing = static_cast<Landing&>(ticket);
  Peer& peer = *landing.peer;
  const MessageHeader& message = landing.header;
  peer.silent_ticks = 0;
  if (error)
    breaks(peer, std::string("its connection broke: ") + error);
  else if ((message.flags & flag_payload_sum) && message.payload_sum != sum_of(landing.at, message.bytes))
    breaks(peer, "what it sent " + text_of(landing.wire->wire) + " came damaged: its checksum differs");
  else if (!peer.lost && !stopping_)
    finish_chunk(peer, *landing.wire, *landing.slot);
  landings_.give(landing);
}

void Engine::finish_chunk(Peer& peer, InWire& wire, InSlot& slot) {
  uint64_t sequence = slot.sequence;
  if (wire.land(slot) && peer.endpoint)
    send_control(peer, Kind::refreshed, nullptr, 0, {.sequence = sequence, .wire = wire.wire.id, .slot = slot.slot});
}

void Engine::on_credits(Peer& peer, const std::byte* data, size_t bytes) {
  if (bytes == 0 || bytes % sizeof(CreditWords) != 0 || bytes > credits_in_message_max * sizeof(CreditWords))
    return breaks(peer, "it broke the protocol: credits of a wrong size");
  for (size_t at = 0; at < bytes; at += sizeof(CreditWords)) {
    CreditWords words;
    std::memcpy(&words, data + at, sizeof words);
    OutWire* wire = ends_.out.find(words.wire);
    std::string why = !wire || wire->peer != peer.process
                          ? "it released wire " + std::to_string(words.wire) + ", which does not lead to it"
                          : peer.out.release(*wire, words);
    if (!why.empty()) return breaks(peer, "it broke the protocol: " + why);
  }
}

void Engine::on_bye(Peer& peer, Kind kind) {
  if (kind == Kind::bye_heard && !stopping_) return breaks(peer, "it broke the protocol: nobody said bye to it");
  if (kind == Kind::bye && peer.endpoint) send_control(peer, Kind::bye_heard, nullptr, 0);
  peer.left = true;
  if (!std::exchange(peer.failed, true))
    peer.out.fail("process " + std::to_string(peer.process) + " has closed its transport");
}

void Engine::on_refreshed(Peer& peer, const MessageHeader& header) {
  OutWire* wire = ends_.out.find(header.wire);
  std::string why = !wire || wire->peer != peer.process ? "it acknowledged a wire that does not lead to it"
                                                        : peer.out.refreshed(*wire, header.slot, header.sequence);
  if (!why.empty()) breaks(peer, "it broke the protocol: " + why);
}

}  // namespace sluice::ucx
