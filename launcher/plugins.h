// SPDX-License-Identifier: Apache-2.0
// The one load point for what is not in the tree: shared objects that export a table of OpDefs by
//   extern "C" const sluice::OpDef* const* sluice_ops(size_t* count);
// The operator installs them and names them under [plugins]; a plug-in is native code and is trusted like one.
// Thread rule: called once, from main or the Python module, before anything is planned.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/op.h"

namespace sluice {

struct Plugin {
  std::string path;
  uint64_t hash = 0;  // xxHash64 of the file: it stands in the plan
  std::vector<const OpDef*> ops;
};

// Throws Error(not_found | io): no such file, no such symbol, an absurd table. The object stays loaded for good, since
// its constants are used by every plan made from then on.
Plugin load_plugin(const std::string& path);
// Of the file, without loading it: whether it is the one that a plan was made with. Throws Error(not_found | io).
uint64_t hash_of_plugin(const std::string& path);

}  // namespace sluice
