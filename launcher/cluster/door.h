// SPDX-License-Identifier: Apache-2.0
// The port of a coordinator: takes calls, shakes hands, and hands on the sockets of those who proved the secret. It is
// a thread of its own, so that a flood of calls keeps nobody waiting who is in already. Invariants: at most
// `pending_max` unproved calls are held, the oldest goes first; each has 5 s; what it may send is bounded by the
// handshake's size. Thread rule: any thread.
#pragma once
#include <memory>

#include "launcher/cluster/handshake.h"

namespace sluice {

class Door {
 public:
  static constexpr size_t pending_max = 256;
  using Admit = std::function<void(int fd, Role role)>;  // on the door's thread; the descriptor is the callee's

  // Throws Error: no such address, the port is taken.
  Door(const std::string& host, int port, const Secret& secret, Admit admit);
  ~Door();  // closes all
  int port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
