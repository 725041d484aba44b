// SPDX-License-Identifier: Apache-2.0
// The index rule: one line such as "mk,kn->mn" gives shapes and SBP signatures.
#include "kernels/rule.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

// What a dim of an operand stands for: a letter, or the position of a star dim counted from the right ('A' + position).
// A broadcast dim (size 1 against a larger one) and a star dim that an operand lacks stand for nothing.
using Label = char;
constexpr Label nothing = 0;
constexpr bool is_star(Label l) { return l >= 'A' && l <= 'Z'; }

struct Term {
  std::string labels;  // '*' stands for the star dims
  bool star = false;
};

struct IndexRule {
  std::vector<Term> in, out;
  std::string whole;  // letters that must not be split
};

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

Term parse_term(std::string_view text, std::string& whole) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '!') {
      check(i + 1 < text.size(), "an index rule ends with '!'");
      whole += text[++i];
    }
    check(text[i] == '*' || (text[i] >= 'a' && text[i] <= 'z'), "an index rule holds letters, '*', '!' and ',' only");
    term.star |= text[i] == '*';
    term.labels += text[i];
  }
  return term;
}

IndexRule parse_index(std::string_view index) {
  IndexRule rule;
  size_t arrow = index.find("->");
  check(arrow != index.npos, "an index rule needs '->'");
  if (arrow > 0)
    for (auto part : parts_of(index.substr(0, arrow), ',')) rule.in.push_back(parse_term(part, rule.whole));
  for (auto part : parts_of(index.substr(arrow + 2), ',')) rule.out.push_back(parse_term(part, rule.whole));
  return rule;
}

bool is_one(const Dim& dim) { return dim.size == 1 && dim.sym == fixed_sym; }

// A rule applied to operands: the label of each dim and the dim that each label stands for.
struct Bound {
  std::vector<std::string> in, out;
  std::array<Dim, 128> dims{};
  std::array<bool, 128> known{};
  std::string labels;  // in order of appearance
  std::string whole;
};

std::string expand(const Term& term, size_t stars) {
  std::string labels;
  for (char c : term.labels) {
    if (c != '*') {
      labels += c;
      continue;
    }
    for (size_t s = 0; s < stars; ++s) labels += char('A' + stars - 1 - s);
  }
  return labels;
}

std::string what_of(Label label, int dim, size_t input) {
  return is_star(label) ? fmt::format("dim {} of input {}", dim, input)
                        : fmt::format("dim {} of input {} ('{}' of the rule)", dim, input, label);
}

void unify(const RuleArgs& args, Bound& bound, size_t input, int dim, Label label) {
  const Dim& mine = args.in[input].shape[size_t(dim)];
  auto l = size_t(label);
  Dim& agreed = bound.dims[l];
  if (!bound.known[l] || (is_star(label) && is_one(agreed))) {
    if (!bound.known[l]) bound.labels += label;
    bound.known[l] = true;
    agreed = mine;
    return;
  }
  if (mine == agreed || (is_star(label) && is_one(mine))) return;
  refuse(args, Code::value,
         fmt::format("{} is {}, but another input has {} there", what_of(label, dim, input), text_of(Shape{mine}),
                     text_of(Shape{agreed})),
         mine.sym != agreed.sym ? "a batch dim goes only with a batch dim (or with size 1)" : "");
}

Bound bind(const RuleArgs& args) {
  IndexRule rule = parse_index(args.op->rule.index);
  Bound bound;
  bound.whole = rule.whole;
  size_t stars = 0;
  size_t count = args.in.size();
  auto term_of = [&](size_t i) -> const Term& { return rule.in[std::min(i, rule.in.size() - 1)]; };
  check(count == 0 || !rule.in.empty(), "an index rule has fewer inputs than the op");
  for (size_t i = 0; i < count; ++i) {
    const Term& term = term_of(i);
    size_t letters = term.labels.size() - (term.star ? 1 : 0), rank = args.in[i].shape.size();
    if (rank < letters || (!term.star && rank != letters))
      refuse(args, Code::value,
             fmt::format("input {} has {} dims, not {}{}", i, rank, term.star ? "at least " : "", letters));
    bound.in.push_back(expand(term, rank - letters));
    stars = std::max(stars, term.star ? rank - letters : 0);
  }
  for (size_t i = 0; i < count; ++i)
    for (size_t d = 0; d < bound.in[i].size(); ++d) unify(args, bound, i, int(d), bound.in[i][d]);
  for (size_t i = 0; i < count; ++i)
    for (size_t d = 0; d < bound.in[i].size(); ++d) {
      Label& label = bound.in[i][d];
      if (is_star(label) && is_one(args.in[i].shape[d]) && !is_one(bound.dims[size_t(label)])) label = nothing;
    }
  for (auto& term : rule.out) bound.out.push_back(expand(term, stars));
  return bound;
}

Sbp place(const std::string& labels, Label label, Sbp absent) {
  size_t d = labels.find(label);
  return d == labels.npos ? absent : Sbp::split(int(d));
}

size_t input_count(std::string_view inputs, bool& variadic) {
  variadic = inputs.size() >= 3 && inputs.substr(inputs.size() - 3) == "...";
  return inputs.empty() ? 0 : size_t(std::count(inputs.begin(), inputs.end(), ',')) + 1;
}

void check_count(const RuleArgs& args) {
  bool variadic = false;
  size_t want = input_count(args.op->inputs, variadic), have = args.in.size();
  if (variadic ? have >= want : have == want) return;
  refuse(args, Code::type,
         fmt::format("{} inputs, not {}{} ({})", have, variadic ? "at least " : "", want, args.op->inputs));
}

void check_size(const RuleArgs& args, const LogicalType& type) {
  try {
    numel(type.shape);
  } catch (const Error& error) {
    refuse(args, error.code(), error.message());
  }
}

bool fits(const Signature& signature, std::span<const LogicalType> in, std::span<const LogicalType> out) {
  auto all = [](const std::vector<Sbp>& sbps, std::span<const LogicalType> types) {
    for (size_t i = 0; i < sbps.size(); ++i) {
      if (sbps[i].is_partial() && types[i].dtype == DType::bool_) return false;  // no sums of truth values
      check(!sbps[i].is_split() || size_t(sbps[i].dim) < types[i].shape.size(), "a signature splits a dim that is not");
    }
    return true;
  };
  return all(signature.in, in) && all(signature.out, out);
}

}  // namespace

void refuse(const RuleArgs& args, Code code, const std::string& reason, std::string next) {
  std::string types;
  for (auto& type : args.in) types += (types.empty() ? "" : ", ") + text_of(type);
  throw Error(code, fmt::format("{}({}): {}", args.op->name, types, reason), {}, std::move(next));
}

std::vector<LogicalType> index_types(const RuleArgs& args) {
  Bound bound = bind(args);
  std::vector<LogicalType> out;
  for (auto& labels : bound.out) {
    LogicalType type{args.in.empty() ? DType::float32 : args.in[0].dtype, {}};
    for (char label : labels) {
      check(bound.known[size_t(label)], "an index rule's output has a letter that no input has");
      type.shape.push_back(bound.dims[size_t(label)]);
    }
    out.push_back(std::move(type));
  }
  return out;
}

std::vector<Signature> index_signatures(const RuleArgs& args) {
  Bound bound = bind(args);
  std::vector<Signature> list;
  for (char label : bound.labels) {
    if (bound.whole.find(label) != bound.whole.npos) continue;
    Signature signature;
    for (auto& labels : bound.in) signature.in.push_back(place(labels, label, Sbp::broadcast()));
    for (auto& labels : bound.out) signature.out.push_back(place(labels, label, Sbp::partial()));
    list.push_back(std::move(signature));
  }
  size_t n = args.in.size(), m = bound.out.size();
  std::vector<Sbp> partial(m, Sbp::partial());
  if (args.op->rule.linear == 1) list.push_back({std::vector<Sbp>(n, Sbp::partial()), partial});
  for (size_t i = 0; i < n && args.op->rule.linear == 2; ++i) {
    if (!(args.op->rule.partial_mask >> i & 1)) continue;
    Signature signature{std::vector<Sbp>(n, Sbp::broadcast()), partial};
    signature.in[i] = Sbp::partial();
    list.push_back(std::move(signature));
  }
  return list;
}

DType same_dtype(const RuleArgs& args) {
  for (auto& type : args.in)
    if (type.dtype != args.in[0].dtype) refuse(args, Code::type, "the dtypes differ", "convert one with astype");
  return args.in.empty() ? DType::float32 : args.in[0].dtype;
}

std::vector<LogicalType> types_float(const RuleArgs& args) {
  if (!is_compute_float(same_dtype(args))) refuse(args, Code::type, "needs float32 or float64", "convert with astype");
  return index_types(args);
}

std::vector<LogicalType> types_number(const RuleArgs& args) {
  DType dtype = same_dtype(args);
  if (!computes(dtype) || dtype == DType::bool_)
    refuse(args, Code::type, fmt::format("does not compute with {}", name_of(dtype)), "convert with astype");
  return index_types(args);
}

std::vector<LogicalType> types_compare(const RuleArgs& args) {
  DType dtype = same_dtype(args);
  if (!computes(dtype))
    refuse(args, Code::type, fmt::format("does not compute with {}", name_of(dtype)), "convert with astype");
  auto out = index_types(args);
  for (auto& type : out) type.dtype = DType::bool_;
  return out;
}

std::vector<LogicalType> types_bool(const RuleArgs& args) {
  if (same_dtype(args) != DType::bool_) refuse(args, Code::type, "needs bool", "compare, or convert with astype");
  return index_types(args);
}

int resolve_axis(const RuleArgs& args, int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    refuse(args, Code::value, fmt::format("axis {} is outside of a tensor of {} dims", axis, rank));
  return int(axis < 0 ? axis + rank : axis);
}

std::optional<DType> promote(DType a, DType b) {
  if (a == b) return a;
  if (is_float(a) && is_float(b)) {
    if (a == DType::float64 || b == DType::float64) return DType::float64;
    return DType::float32;  // of bfloat16 and float16 too: neither holds the other
  }
  if (!is_integer(a) || !is_integer(b)) return std::nullopt;
  if (a != DType::uint8 && b != DType::uint8) return std::max(a, b);
  return std::max({a == DType::uint8 ? b : a, DType::int16});
}

std::string nearest(std::string_view name, std::span<const std::string_view> candidates) {
  auto distance = [&](std::string_view other) {
    std::vector<size_t> row(other.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= name.size(); ++i) {
      size_t diagonal = row[0]++;
      for (size_t j = 1; j < row.size(); ++j) {
        size_t swap = diagonal + (name[i - 1] != other[j - 1]);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, swap});
      }
    }
    return row.back();
  };
  if (name.size() > 64) return {};
  std::string best;
  size_t least = name.size() / 2 + 2;
  for (auto other : candidates)
    if (size_t d = distance(other); d < least) least = d, best = other;
  return best;
}

std::vector<LogicalType> infer_types(const OpDef& op, std::span<const LogicalType> in, const Attrs& attrs) {
  RuleArgs args{&op, in, &attrs};
  check_count(args);
  for (auto& type : in) {
    if (type.shape.size() > size_t(rank_max)) refuse(args, Code::value, fmt::format("more than {} dims", rank_max));
    check_size(args, type);
  }
  std::vector<LogicalType> out;
  if (op.rule.types) {
    out = op.rule.types(args);
  } else {
    same_dtype(args);
    out = index_types(args);
  }
  for (auto& type : out) {
    if (type.shape.size() > size_t(rank_max))
      refuse(args, Code::value, fmt::format("the result has {} dims, more than {}", type.shape.size(), rank_max));
    check_size(args, type);
  }
  return out;
}

std::vector<Signature> signatures_of(const OpDef& op, std::span<const LogicalType> in, const Attrs& attrs) {
  RuleArgs args{&op, in, &attrs};
  auto out = infer_types(op, in, attrs);
  std::vector<Signature> list, result;
  if (op.rule.signatures)
    list = op.rule.signatures(args);
  else if (!op.rule.index.empty())
    list = index_signatures(args);
  Signature last{std::vector<Sbp>(in.size(), Sbp::broadcast()), std::vector<Sbp>(out.size(), Sbp::broadcast())};
  for (auto& signature : list) {
    check(signature.in.size() == in.size() && signature.out.size() == out.size(), "a signature of another arity");
    if (signature != last && std::find(result.begin(), result.end(), signature) == result.end() &&
        fits(signature, in, out))
      result.push_back(std::move(signature));
  }
  result.push_back(std::move(last));
  return result;
}

}  // namespace sluice
