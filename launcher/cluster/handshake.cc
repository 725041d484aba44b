// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace sluice {
namespace {

constexpr uint8_t magic[8] = {'s', 'l', 'u', 'i', 'c', 'e', '\r', '\n'};
constexpr size_t role_at = 10, nonce_at = 16, mac_at = 48;
constexpr uint8_t welcome = 1;

void put_head(Handshake::Bytes& bytes) {
  std::copy(std::begin(magic), std::end(magic), bytes.begin());
  bytes[8] = uint8_t(cluster_version & 0xff);
  bytes[9] = uint8_t(cluster_version >> 8);
}

int version_of(std::span<const uint8_t> bytes) { return bytes[8] | bytes[9] << 8; }

Digest digest_at(std::span<const uint8_t> bytes, size_t at) {
  Digest digest;
  std::copy_n(bytes.begin() + std::ptrdiff_t(at), digest.size(), digest.begin());
  return digest;
}

// Each side proves under its own name: what one sends is no proof for the other.
Digest proof_of(const Secret& secret, std::string_view side, Role role, const Digest& caller,
                const Digest& coordinator) {
  std::vector<uint8_t> bytes(side.begin(), side.end());
  bytes.insert(bytes.end(), {0, uint8_t(cluster_version & 0xff), uint8_t(cluster_version >> 8), uint8_t(role)});
  bytes.insert(bytes.end(), caller.begin(), caller.end());
  bytes.insert(bytes.end(), coordinator.begin(), coordinator.end());
  return hmac_sha256(secret.bytes, bytes);
}

}  // namespace

Handshake::Handshake(const Secret& secret) : secret_(secret) {}

size_t Handshake::wanted() const {
  if (state_ == listening) return hello_bytes - got_.size();
  return state_ == proving ? proof_bytes - got_.size() : 0;
}

Handshake::State Handshake::take(std::span<const uint8_t> bytes) {
  check(bytes.size() <= wanted(), "a handshake was given more than it wanted");
  got_.insert(got_.end(), bytes.begin(), bytes.end());
  if (state_ == listening) {
    size_t known = std::min(got_.size(), sizeof magic);
    if (!std::equal(got_.begin(), got_.begin() + std::ptrdiff_t(known), magic)) return state_ = refused;
    if (got_.size() == hello_bytes) return read_hello();
  } else if (state_ == proving && got_.size() == proof_bytes) {
    return read_proof();
  }
  return state_;
}

Handshake::State Handshake::read_hello() {
  role_ = Role(got_[role_at]);
  caller_nonce_ = digest_at(got_, nonce_at);
  answer_.assign(challenge_bytes, 0);
  put_head(answer_);  // a caller of another version reads ours from it
  if (version_of(got_) != cluster_version || (role_ != Role::worker && role_ != Role::client)) return state_ = refused;
  random_bytes(nonce_);
  Digest mac = proof_of(secret_, "coordinator", role_, caller_nonce_, nonce_);
  std::copy(nonce_.begin(), nonce_.end(), answer_.begin() + nonce_at);
  std::copy(mac.begin(), mac.end(), answer_.begin() + mac_at);
  got_.clear();
  return state_ = proving;
}

Handshake::State Handshake::read_proof() {
  Digest expected = proof_of(secret_, "caller", role_, caller_nonce_, nonce_);
  bool good = equal_in_constant_time(got_, expected);
  if (good) answer_ = {welcome};
  return state_ = good ? accepted : refused;
}

Handshake::Bytes Handshake::answer() { return std::exchange(answer_, {}); }

Handshake::Bytes Handshake::hello(Role role, const Digest& nonce) {
  Bytes bytes(hello_bytes, 0);
  put_head(bytes);
  bytes[role_at] = uint8_t(role);
  std::copy(nonce.begin(), nonce.end(), bytes.begin() + nonce_at);
  return bytes;
}

Handshake::Bytes Handshake::prove(const Secret& secret, Role role, const Digest& nonce,
                                  std::span<const uint8_t> challenge, const std::string& peer) {
  if (challenge.size() != challenge_bytes || !std::equal(std::begin(magic), std::end(magic), challenge.begin()))
    throw Error(Code::usage, fmt::format("{} is no coordinator of sluice", peer), {}, "check the address");
  if (int version = version_of(challenge); version != cluster_version)
    throw Error(Code::usage,
                fmt::format("{} speaks version {} of the protocol, not {}", peer, version, cluster_version), {},
                "install the same version of sluice on all machines");
  Digest theirs = digest_at(challenge, nonce_at);
  if (!equal_in_constant_time(digest_at(challenge, mac_at), proof_of(secret, "coordinator", role, nonce, theirs)))
    throw Error(Code::usage, fmt::format("{} has another secret", peer), {},
                "give the secret that its coordinator was started with");
  Digest mac = proof_of(secret, "caller", role, nonce, theirs);
  return {mac.begin(), mac.end()};
}

}  // namespace sluice
