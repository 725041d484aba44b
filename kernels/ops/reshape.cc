// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/build.h"
#include "kernels/rule.h"
#include "kernels/strided.h"

namespace sluice::ops {
namespace {

constexpr AttrDef attrs[] = {
    {AttrDef::shape, "shape", "The shape of the result; one dim may be -1: what is left.", ""}};
constexpr Sample samples[] = {{"float[4b,3,5]", "shape=[-1,15]"}, {"float[4b,6]", "shape=shape[4,2,3]"},
                              {"float[4b,6]", "shape=[-1,3]"},    {"float[3,4b,2]", "shape=[3,-1]"},
                              {"float[3,4]", "shape=shape[2,6]"}, {"int32[5]", "shape=shape[1,5,1]"}};

// Dims [in, in_end) of the input hold the same elements as dims [out, out_end) of the result. Groups are minimal, so a
// dim that leads its group on both sides is split at the same elements on both sides.
struct Group {
  size_t in = 0, in_end = 0, out = 0, out_end = 0;
};

bool is_one(const Dim& dim) { return dim.size == 1 && dim.sym == fixed_sym; }

// `out` with -1 replaced by the number of elements that are left.
Shape resolved(const RuleArgs& args) {
  Shape out = attr<Shape>(*args.attrs, "shape");
  int64_t known = 1, total = numel(args.in[0].shape);
  Dim* open = nullptr;
  for (auto& dim : out) {
    bool twice = dim.size == -1 && open;
    if (twice || dim.size < -1) refuse(args, Code::value, "only one dim may be -1, and none negative: " + text_of(out));
    if (dim.size == -1) open = &dim;
    if (dim.size != -1 && __builtin_mul_overflow(known, dim.size, &known))
      refuse(args, Code::value, "too many elements: " + text_of(out));
  }
  if (open && (known == 0 || total % known != 0))
    refuse(args, Code::value, fmt::format("{} elements do not fill {}", total, text_of(out)));
  if (open) open->size = total / known;
  if (!open && known != total)
    refuse(args, Code::value, fmt::format("{} elements do not fit {}, which has {}", total, text_of(out), known));
  return out;
}

std::vector<Group> groups_of(const Shape& in, const Shape& out) {
  std::vector<Group> groups;
  size_t i = 0, o = 0;
  while (i < in.size() || o < out.size()) {
    Group group{i, i, o, o};
    int64_t p = 1, q = 1;
    if (i < in.size()) p = in[i++].size;
    if (o < out.size()) q = out[o++].size;
    while (p != q) {
      if (p < q && i < in.size())
        p *= in[i++].size;
      else if (o < out.size())
        q *= out[o++].size;
      else
        p *= in[i++].size;
    }
    group.in_end = i;
    group.out_end = o;
    groups.push_back(group);
  }
  return groups;
}

// The first dim of [begin, end) that is not 1; end when all are.
size_t leader(const Shape& shape, size_t begin, size_t end) {
  while (begin < end && is_one(shape[begin])) ++begin;
  return begin;
}

// Gives the result's dim that leads a group the symbol of the input's.
void carry_symbol(const RuleArgs& args, Shape& out, const Group& group) {
  const Shape& in = args.in[0].shape;
  size_t from = leader(in, group.in, group.in_end);
  for (size_t d = group.in; d < group.in_end; ++d)
    if (in[d].sym != fixed_sym && d != from)
      refuse(args, Code::value, fmt::format("dim {} is bounded and would be mixed with the dims before it", d),
             "keep the batch dim in front of the dims it is joined with");
  if (from == group.in_end || in[from].sym == fixed_sym) return;
  size_t to = leader(out, group.out, group.out_end);
  if (to == group.out_end) to = group.out;
  int64_t tail = 1, unit = in[from].granule;
  for (size_t d = from + 1; d < group.in_end; ++d) unit *= in[d].size;
  for (size_t d = to + 1; d < group.out_end; ++d) tail *= out[d].size;
  if (to == group.out_end || tail == 0 || unit % tail != 0)
    refuse(args, Code::value, fmt::format("the batch dim does not lead a dim of {}", text_of(out)),
           "keep the batch dim whole: reshape(x, (-1, ...))");
  out[to].sym = in[from].sym;
  out[to].granule = unit / tail;
}

std::vector<LogicalType> types(const RuleArgs& args) {
  const Shape& in = args.in[0].shape;
  Shape out = resolved(args), wanted = out;
  bool bounded = false;
  for (auto& dim : in) bounded |= dim.sym != fixed_sym;
  for (auto& dim : out) dim = {dim.size};
  if (numel(in) == 0) {
    if (bounded && wanted != in) refuse(args, Code::value, "an empty tensor with a batch dim keeps its shape");
    return {{args.in[0].dtype, wanted}};
  }
  for (auto& group : groups_of(in, out)) carry_symbol(args, out, group);
  for (size_t d = 0; d < out.size(); ++d)
    if (wanted[d].sym != fixed_sym && wanted[d] != out[d])
      refuse(args, Code::value, fmt::format("the result is {}, not {}", text_of(out), text_of(wanted)));
  return {{args.in[0].dtype, out}};
}

// A dim that leads its group on both sides is split in the same pieces when both have the same number of units.
std::vector<Signature> signatures(const RuleArgs& args) {
  const Shape& in = args.in[0].shape;
  Shape out = types(args)[0].shape;
  std::vector<Signature> list;
  if (numel(in) > 0)
    for (auto& group : groups_of(in, out)) {
      size_t from = leader(in, group.in, group.in_end), to = leader(out, group.out, group.out_end);
      if (from == group.in_end || to == group.out_end) continue;
      if (in[from].sym == out[to].sym && in[from].size / in[from].granule == out[to].size / out[to].granule)
        list.push_back({{Sbp::split(int(from))}, {Sbp::split(int(to))}});
    }
  list.push_back({{Sbp::partial()}, {Sbp::partial()}});
  return list;
}

}  // namespace

extern constinit const OpDef reshape{
    .name = "reshape",
    .doc = "`x` in another shape, its elements in the same row-major order.",
    .samples = samples,
    .inputs = "x",
    .attrs = attrs,
    .rule = {.types = types, .signatures = signatures},
    .grad =
        [](GradArgs& args) {
          Attrs same{{"shape", args.build.type(args.in(0)).shape}};
          args.result[0] = args.build.op("reshape", {args.grad[0]}, same);
        },
    .cpu = copy_same,
    .cuda = copy_same_cuda,
    .alias = 1,
    .view = ViewKind::same,
    .method = true,
};

}  // namespace sluice::ops
