// SPDX-License-Identifier: Apache-2.0
#include "protocol/actor.h"

#include <string>

namespace sluice {

const ActorDef& kind_of(std::span<const ActorDef* const> kinds, std::string_view name) {
  for (auto* kind : kinds)
    if (kind->name == name) return *kind;
  std::string known;
  for (auto* kind : kinds) known += (known.empty() ? "" : ", ") + std::string(kind->name);
  throw Error(Code::not_found, "the plan names the actor kind '" + std::string(name) + "', which does not exist", {},
              "kinds: " + known);
}

}  // namespace sluice
