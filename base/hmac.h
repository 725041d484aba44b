// SPDX-License-Identifier: Apache-2.0
// What proves a secret over a connection without showing it: HMAC-SHA256 of the other side's fresh random bytes.
// Thread rule: pure functions.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace sluice {

using Digest = std::array<uint8_t, 32>;

Digest hmac_sha256(std::span<const uint8_t> key, std::span<const uint8_t> bytes);
// From the kernel's generator; throws Error where it has none.
void random_bytes(std::span<uint8_t> bytes);
// Takes as long whatever differs, so that timing tells nothing about a proof. Sizes may differ: not equal.
bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b);

}  // namespace sluice
