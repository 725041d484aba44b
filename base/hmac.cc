// SPDX-License-Identifier: Apache-2.0
#include "base/hmac.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include "base/error.h"

namespace sluice {

Digest hmac_sha256(std::span<const uint8_t> key, std::span<const uint8_t> bytes) {
  // HMAC takes no null key, not even an empty one.
  static constexpr uint8_t nothing = 0;
  Digest digest{};
  unsigned size = 0;
  auto* made = HMAC(EVP_sha256(), key.empty() ? &nothing : key.data(), int(key.size()),
                    bytes.empty() ? &nothing : bytes.data(), bytes.size(), digest.data(), &size);
  check(made && size == digest.size(), "libcrypto computes no HMAC-SHA256");
  return digest;
}

void random_bytes(std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Error(Code::failed, "the kernel gives no random bytes, so no secret can be made");
    bytes = bytes.subspan(size_t(got));
  }
}

bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() && (a.empty() || CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace sluice
