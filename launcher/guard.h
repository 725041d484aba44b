// SPDX-License-Identifier: Apache-2.0
// So that nothing of ours stays behind: not what our children started, and nothing after our own sudden end.
// Thread rule: one thread; a Guard is made before the first thread starts.
#pragma once
#include <sys/types.h>

#include <set>
#include <string>

#include "launcher/process.h"

namespace sluice {

// Orphans among our descendants become our children from now on.
void adopt_orphans();
std::set<pid_t> children();
// Kills and reaps children, and theirs, until there are none but `spared`.
void kill_children_but(const std::set<pid_t>& spared);

// A process that does nothing while we live. When we are gone, whatever the cause, it kills groups and removes folders.
class Guard {
 public:
  Guard();  // forks: before the first thread
  ~Guard();
  Guard(const Guard&) = delete;
  void add_group(pid_t group);
  void forget_group(pid_t group);
  void add_folder(const std::string& path);

 private:
  void tell(const std::string& line);
  pid_t pid_ = -1;
  Handle to_;
};

}  // namespace sluice
