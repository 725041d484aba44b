// SPDX-License-Identifier: Apache-2.0
// Which network interface an address belongs to: UCX is bound by interface, users say addresses.
// Thread rule: pure but for the system's list.
#pragma once
#include <string>

namespace sluice {

// "127.0.0.1" -> "lo". Throws Error(usage) where no interface of this machine has the address.
std::string interface_of(const std::string& address);

}  // namespace sluice
