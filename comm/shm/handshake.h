// SPDX-License-Identifier: Apache-2.0
// How the processes of a run meet: the lower number dials, both prove the run's key, then they swap their pages.
//
//   dials                                            listens
//   Hello { run, from, to, random bytes }  ------->
//                                          <-------  Answer { random bytes, HMAC(key, "listens" Hello bytes) }
//   Proof { HMAC(key, "dials" Hello bytes) } page ->
//                                          <-------  Proof { HMAC(key, "met" Hello bytes) } page
//
// A descriptor is taken only with a proof. Whoever says anything else, or nothing for long, is dropped; others need not
// wait for that.
// Thread rule: one thread.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "comm/shm/socket.h"
#include "comm/transport.h"

namespace sluice::shm {

struct Met {
  int process = 0;
  Fd socket, page;
};

// With all processes whose address is not empty. Throws Error that names who is missing when the time is over, or at
// once when one has gone or has another key.
std::vector<Met> meet(const ProcessGroup& group, Door door, const std::vector<std::string>& addresses,
                      const std::function<int(int process)>& page_for, std::chrono::milliseconds limit);

}  // namespace sluice::shm
