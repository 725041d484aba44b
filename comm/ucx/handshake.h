// SPDX-License-Identifier: Apache-2.0
// How two processes of a run prove to each other that they hold its key, which itself never travels:
//
//   a -> b   hello   nonce of a                         b -> a   hello   nonce of b
//   a -> b   proof   both nonces, HMAC over them        b -> a   proof   likewise
//
// A proof names its direction, so it cannot be sent back; it holds the other's fresh nonce, so it cannot be replayed.
// The session id of the pair comes from key and nonces: what is not of this session is dropped.
// Thread rule: one thread.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hmac.h"
#include "comm/transport.h"

namespace sluice::ucx {

using Nonce = std::array<uint8_t, 16>;

struct Proof {
  Nonce from, to;  // of the process that proves, and of the one it proves to
  Digest digest;
};
static_assert(sizeof(Proof) == 64);

class Handshake {
 public:
  Handshake(const ProcessGroup& group, int peer);
  const Nonce& nonce() const { return nonce_; }
  Proof answer(const Nonce& peers_nonce) const;
  // Whether it proves the peer; if so there is a session from now on.
  bool accept(const Proof& proof);
  uint64_t session() const { return session_; }

 private:
  Digest digest(const char* what, int from, int to, const Nonce& from_nonce, const Nonce& to_nonce) const;

  std::array<uint8_t, 32> key_;
  uint64_t run_;
  int process_, peer_;
  Nonce nonce_;
  uint64_t session_ = 0;
};

}  // namespace sluice::ucx
