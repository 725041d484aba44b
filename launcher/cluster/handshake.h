// SPDX-License-Identifier: Apache-2.0
// Who proves what to whom before any other byte counts. Each side sends 32 fresh random bytes and gets them back under
// the cluster's secret, so that nothing shows the secret and nothing can be replayed:
//
//   caller                      coordinator
//     hello: role, nonce c  -->
//                           <-- challenge: nonce s, HMAC("coordinator", version, role, c, s)
//     proof: HMAC("caller", version, role, c, s) -->
//                           <-- verdict: one byte
//
// Every message has one size, known beforehand: no more is ever read, so what follows belongs to who comes next.
// Thread rule: values.
#pragma once
#include <span>

#include "base/hmac.h"
#include "launcher/cluster/cluster.h"

namespace sluice {

inline constexpr uint16_t cluster_version = 1;  // of handshake and wire.capnp; raised when old peers would misread it

enum class Role : uint8_t { worker = 1, client = 2 };

class Handshake {
 public:
  static constexpr size_t hello_bytes = 48, challenge_bytes = 80, proof_bytes = 32;
  using Bytes = std::vector<uint8_t>;

  enum State { listening, proving, accepted, refused };

  // The coordinator's side. `take` gets the bytes in pieces of any size, but never more than wanted().
  explicit Handshake(const Secret& secret);
  size_t wanted() const;
  State take(std::span<const uint8_t> bytes);
  Bytes answer();  // what is to be sent now; empty: nothing
  Role role() const { return role_; }

  // The caller's side.
  static Bytes hello(Role role, const Digest& nonce);
  // The proof to send; throws Error: no coordinator, another version, another secret.
  static Bytes prove(const Secret& secret, Role role, const Digest& nonce, std::span<const uint8_t> challenge,
                     const std::string& peer);

 private:
  State read_hello();
  State read_proof();

  Secret secret_;
  Digest nonce_{}, caller_nonce_{};
  Role role_ = Role::worker;
  State state_ = listening;
  Bytes got_, answer_;
};

// Connects and shakes hands; returns the socket. Blocks, at most until `limit` from now; asks again where the
// coordinator dropped the call (it was flooded) and, with `patient`, where nobody listens yet. Throws Error.
int call_coordinator(const Credentials& credentials, Role role, std::chrono::milliseconds limit, bool patient);

}  // namespace sluice
