// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <memory>

#include "base/error.h"

namespace sluice {
namespace {

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address && address->sa_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  if (address && address->sa_family == AF_INET6)
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  return text;
}

}  // namespace

std::string interface_of(const std::string& address) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) throw Error(Code::io, "this machine's network interfaces cannot be listed");
  std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, freeifaddrs);
  std::string known;
  for (auto* one = first; one; one = one->ifa_next) {
    std::string text = text_of(one->ifa_addr);
    if (text.empty() || !(one->ifa_flags & IFF_UP)) continue;
    if (text == address) return one->ifa_name;
    known += (known.empty() ? "" : ", ") + text;
  }
  throw Error(Code::usage, "no network interface of this machine has the address " + address, {},
              "give --listen one of: " + known);
}

}  // namespace sluice
