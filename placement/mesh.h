// SPDX-License-Identifier: Apache-2.0
// A mesh: named axes over a run of global ranks (rank = device). The last axis is the innermost link.
// Invariant: ranks [first_rank, first_rank + size()) ; a rank's coordinates are row-major.
// Thread rule: values.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

struct Mesh {
  std::string name;
  std::vector<Axis> axes;
  int first_rank = 0;

  int size() const;
  bool holds(int rank) const { return rank >= first_rank && rank < first_rank + size(); }
  std::vector<int> coords(int rank) const;
  int rank_at(const std::vector<int>& coords) const;
  int axis(std::string_view name) const;  // -1: no such axis
  bool operator==(const Mesh&) const = default;
};

}  // namespace sluice
