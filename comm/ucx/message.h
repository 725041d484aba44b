// SPDX-License-Identifier: Apache-2.0
// The messages between two transports. Each is one active message with a header; data carries its slot's header behind
// it in the first chunk.
//
//   hello, proof        the handshake (handshake.h)
//   ping                says that its sender lives
//   data                one chunk of what a slot gets; chunks may come in any order
//   credits             slots that the receiver has released, many in one message
//   refreshed           a refresh has landed
//   bye, bye_heard      the sender closes; that it does is known, so it may
//
// Invariants: sizes are as on the wire, little-endian; a header that is not intact is never looked at.
// Thread rule: values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/shape.h"

namespace sluice::ucx {

enum class Kind : uint16_t { hello = 1, proof, ping, data, credits, refreshed, bye, bye_heard };

struct MessageHeader {
  uint64_t run = 0;
  uint64_t session = 0;   // of the pair, from its handshake
  uint64_t sequence = 0;  // data: of the wire's tokens or refreshes; ping: of the pair
  uint64_t total = 0;     // data: bytes of all chunks
  uint32_t from = 0;      // the sending process
  uint32_t wire = 0, slot = 0;
  uint32_t chunk = 0;  // data: its index
  uint32_t bytes = 0;  // of this message's payload
  Kind kind = Kind::ping;
  uint16_t flags = 0;
  uint32_t payload_sum = 0;  // where flags say so
  uint32_t header_sum = 0;   // of all before it, and of the slot's header
};
static_assert(sizeof(MessageHeader) == 64);

inline constexpr uint16_t flag_refresh = 1, flag_payload_sum = 2;

// A slot's header as it travels.
struct SlotWords {
  int64_t step = 0, sequence = 0, bytes_valid = 0;
  int64_t extent[syms_max] = {};
  int32_t micro_batch = 0, micro_batches = 0;
  uint32_t epoch = 0, zero = 0;
};
static_assert(sizeof(SlotWords) == 40 + 8 * syms_max);
SlotWords words_of(const SlotHeader& header);
SlotHeader header_of(const SlotWords& words);

struct FirstHeader {
  MessageHeader message;
  SlotWords slot;
};
static_assert(sizeof(FirstHeader) == sizeof(MessageHeader) + sizeof(SlotWords));

struct CreditWords {
  uint32_t wire = 0, slot = 0;
  uint64_t sequence = 0;  // of the token that was released
};
static_assert(sizeof(CreditWords) == 16);

uint32_t sum_of(const void* data, size_t bytes);
// Of a header that is followed by `slot`, or null.
uint32_t header_sum_of(const MessageHeader& header, const SlotWords* slot);

// A worker's address with the process that it is of. UCX believes an address that it gets: one that is damaged, or of
// another process, must not reach it; unwrap throws Error.
std::string wrap_address(int process, const std::string& address);
std::string unwrap_address(int process, const std::string& text);

// How many chunks make `total` bytes; at least one, which carries the slot's header.
constexpr uint64_t chunks_of(uint64_t total, uint64_t chunk_bytes) {
  return total <= chunk_bytes ? 1 : (total - 1) / chunk_bytes + 1;
}
constexpr uint64_t bytes_of_chunk(uint64_t total, uint64_t chunk_bytes, uint64_t chunk) {
  uint64_t begin = chunk * chunk_bytes;
  return total - begin < chunk_bytes ? total - begin : chunk_bytes;
}

}  // namespace sluice::ucx
