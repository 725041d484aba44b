// SPDX-License-Identifier: Apache-2.0
// A job as bytes and as a file (graph/job.capnp). All of it is data: reading one runs nothing.
// Invariants: equal jobs are equal bytes; what decode_job returns has passed check_graph().
// Thread rule: pure functions, but for the file.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace sluice {

std::vector<std::byte> encode(const Job& job);
Job decode_job(std::span<const std::byte> bytes);  // throws Error(io) on any malformed input

void save_job(const Job& job, const std::string& path);  // whole or not at all; throws Error(io)
Job load_job(const std::string& path);                   // throws Error(not_found | io) that names the file

}  // namespace sluice
