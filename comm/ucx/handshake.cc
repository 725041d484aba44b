// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/handshake.h"

#include <cstring>
#include <string_view>

namespace sluice::ucx {

Handshake::Handshake(const ProcessGroup& group, int peer)
    : key_(group.key), run_(group.run), process_(group.process), peer_(peer) {
  random_bytes(nonce_);
}

Digest Handshake::digest(const char* what, int from, int to, const Nonce& from_nonce, const Nonce& to_nonce) const {
  std::vector<uint8_t> text;
  auto add = [&](const void* bytes, size_t size) {
    auto* begin = static_cast<const uint8_t*>(bytes);
    text.insert(text.end(), begin, begin + size);
  };
  // The version of the messages: processes that differ in it do not talk.
  std::string_view label = "sluice ucx 1 ";
  add(label.data(), label.size());
  add(what, std::strlen(what));
  uint32_t ends[2] = {uint32_t(from), uint32_t(to)};
  add(&run_, sizeof run_);
  add(ends, sizeof ends);
  add(from_nonce.data(), from_nonce.size());
  add(to_nonce.data(), to_nonce.size());
  return hmac_sha256(key_, text);
}

Proof Handshake::answer(const Nonce& peers_nonce) const {
  return {nonce_, peers_nonce, digest("proof", process_, peer_, nonce_, peers_nonce)};
}

bool Handshake::accept(const Proof& proof) {
  if (!equal_in_constant_time(proof.to, nonce_)) return false;
  if (!equal_in_constant_time(proof.digest, digest("proof", peer_, process_, proof.from, nonce_))) return false;
  bool first = process_ < peer_;
  Digest session = digest("session", first ? process_ : peer_, first ? peer_ : process_, first ? nonce_ : proof.from,
                          first ? proof.from : nonce_);
  std::memcpy(&session_, session.data(), sizeof session_);
  return true;
}

}  // namespace sluice::ucx
