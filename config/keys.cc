// SPDX-License-Identifier: Apache-2.0
#include "config/keys.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

constexpr double most = 1e15;  // of counts: far from overflow in any product that the planner makes

const Key table[] = {
    {"mesh", "axes", "table of integers", &MeshSetting::axes, "{}",
     "Named axes and their sizes, outer first; the product is the number of devices. One axis may be -1: what is left. "
     "'pp' cuts pipeline stages and comes first, 'dp' splits the batch, any other name is planned. "
     "[mesh.NAME] describes a further mesh, such as parameter servers.",
     1, 65536},
    {"mesh", "pool", "string", &MeshSetting::pool, "\"\"", "The pool of devices that the mesh lies on."},
    {"train",
     "global_batch",
     "integer",
     &Config::global_batch,
     "0",
     "Rows of one step, over all devices; fit's batch= overrides it.",
     1,
     most,
     {},
     {},
     "fit's batch="},
    {"train",
     "micro_batch",
     "integer",
     &Config::micro_batch,
     "0",
     "Rows of one micro-batch, over all devices. Gradients are accumulated over the micro-batches of a step.",
     1,
     most,
     {},
     {},
     "the global batch"},
    {"train", "clip_norm", "float", &Config::clip_norm, "0.0",
     "Gradients are scaled down to this global norm when theirs is larger; 0 is off.", 0, 1e30},
    {"train",
     "seed",
     "integer",
     &Config::seed,
     "-1",
     "Seed of initial weights, dropout and the order of the data.",
     0,
     9.2e18,
     {},
     {},
     "the job's seed"},
    {"train",
     "reduction_order",
     "string",
     &Config::reduction_order,
     "\"fast\"",
     "\"exact\" fixes the order of every sum, so that results are equal from run to run.",
     {},
     {},
     "fast|exact"},
    {"pipeline",
     "schedule",
     "string",
     &Config::schedule,
     "\"1f1b\"",
     "The order of micro-batches in a pipeline: one forward, one backward; or all forwards first.",
     {},
     {},
     "1f1b|gpipe",
     "interleaved|zb_h1|auto"},
    {"zero", "stage", "integer", &Config::zero_stage, "0",
     "1 keeps the states of optimizers in pieces, one a device of `axes`; 0 is off.", 0, 1},
    {"zero", "axes", "list of strings", &Config::zero_axes, "[]",
     "The axes over which the states are cut; [\"dp\"] when stage is 1 and this is not set."},
    {"memory", "reuse", "boolean", &Config::memory_reuse, "true",
     "Buffers whose lives do not overlap share memory; false helps to find a fault."},
    {"memory", "budget", "string", {}, "", "Memory of one device."},
    {"memory", "recompute", "string", {}, "", "What is computed again instead of kept."},
    {"device",
     "kind",
     "string",
     &Config::device,
     "\"cpu\"",
     "cpu and cuda compute; sim is a CPU that behaves like a GPU, with random delays; null computes nothing.",
     {},
     {},
     "cpu|cuda|sim|null"},
    {"device",
     "threads",
     "integer",
     &Config::device_threads,
     "0",
     "Threads of one device.",
     1,
     4096,
     {},
     {},
     "the cores, divided by the devices of this host"},
    {"plugins", "ops", "list of strings", &Config::plugins, "[]",
     "Shared objects with further ops; a relative path starts at this file's folder."},
    {"debug", "coalesce", "boolean", &Config::coalesce, "true",
     "Ops that need no message between them run as one chain; false gives every op an actor of its own."},
    {"rule", "match", "string", &RuleSetting::match, "\"\"",
     "A regular expression (ECMAScript) over a variable's full name. The first rule that matches holds."},
    {"rule", "sbp", "table of strings", &RuleSetting::sbp, "{}",
     "For each axis of the mesh: \"S(0)\" split along dim 0, \"B\" the same everywhere, \"P\" parts of a sum. "
     "An axis that is not named is planned."},
    {"rule", "mesh", "string", &RuleSetting::mesh, "\"\"", "The [mesh.NAME] that keeps the variable; \"\" is [mesh]."},
    {"rule", "stage", "integer", &RuleSetting::stage, "-1", "The pipeline stage, from 0.", 0, 65535, {}, {}, "planned"},
    {"rule", "staleness", "integer", &RuleSetting::staleness, "0",
     "How many updates old a read may be; 0 is synchronous.", 0, 64},
    {"rule", "recompute", "string", {}, "", "What is computed again instead of kept."},
    {"rule", "dtype", "string", {}, "", "The element type it is kept in."},
    {"embedding", "match", "string", {}, "", "A regular expression over a table's full name."},
};

}  // namespace

std::span<const Key> keys() { return table; }

const Key* find_key(std::string_view section, std::string_view name) {
  for (auto& key : table)
    if (key.section == section && key.name == name) return &key;
  return nullptr;
}

std::vector<std::string> sections() {
  std::vector<std::string> all;
  for (auto& key : table)
    if (std::find(all.begin(), all.end(), key.section) == all.end()) all.emplace_back(key.section);
  return all;
}

std::vector<std::string> names_in(std::string_view section) {
  std::vector<std::string> all;
  for (auto& key : table)
    if (key.section == section && key.member.index() != 0) all.emplace_back(key.name);
  return all;
}

std::string text_of_range(const Key& key) {
  if (key.max >= 1e12) return fmt::format("{:g} or more", key.min);
  return fmt::format("{:g} to {:g}", key.min, key.max);
}

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    size_t end = std::min(list.find('|'), list.size());
    words.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

}  // namespace sluice
