// SPDX-License-Identifier: Apache-2.0
// Helpers for the rules of ops: the index rule as functions, and the messages of refusals.
// A `types` function usually is one of types_* below, or calls index_types and changes what differs.
// Thread rule: pure functions.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "kernels/op.h"

namespace sluice {

// Refuses a call: "add(float32[3,4], float32[5]): REASON".
[[noreturn]] void refuse(const RuleArgs& args, Code code, const std::string& reason, std::string next = {});

// What op.rule.index says: the output types (dtype of the first input) and the signatures (without all-B).
std::vector<LogicalType> index_types(const RuleArgs& args);
std::vector<Signature> index_signatures(const RuleArgs& args);

// index_types for operands of one dtype that is: float32 or float64 | any number | the same, giving bool | bool.
std::vector<LogicalType> types_float(const RuleArgs& args);
std::vector<LogicalType> types_number(const RuleArgs& args);
std::vector<LogicalType> types_compare(const RuleArgs& args);
std::vector<LogicalType> types_bool(const RuleArgs& args);

// The dtype that all of `in` have; refuses when they differ.
DType same_dtype(const RuleArgs& args);
// A dtype that kernels compute with: all but the storage types bfloat16 and float16.
constexpr bool computes(DType t) { return t != DType::bfloat16 && t != DType::float16; }
constexpr bool is_compute_float(DType t) { return t == DType::float32 || t == DType::float64; }

// An axis attribute in [-rank, rank) as a dim; refuses others.
int resolve_axis(const RuleArgs& args, int64_t axis, int rank);

// The dtype of an operation on two dtypes by the array API standard, or none where it leaves that undefined.
std::optional<DType> promote(DType a, DType b);

// The candidate with the smallest edit distance to `name`, or "" when none is near.
std::string nearest(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace sluice
