// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/build.h"
#include "kernels/rule.h"
#include "kernels/strided.h"

namespace sluice::ops {
namespace {

std::array<int64_t, rank_max> broadcast_strides(const Call& call) {
  auto &in = call.in[0], &out = call.out[0];
  auto from = row_strides(in);
  std::array<int64_t, rank_max> stride{};
  for (int d = 0; d < in.rank; ++d)
    stride[size_t(d + out.rank - in.rank)] = in.dims[size_t(d)] == 1 ? 0 : from[size_t(d)];
  return stride;
}

}  // namespace

#ifdef __CUDACC__
void broadcast_to_cuda(const Call& call) { copy_strided_cuda(call, broadcast_strides(call)); }
#else
namespace {

constexpr AttrDef attrs[] = {{AttrDef::shape, "shape", "The shape of the result.", ""}};
constexpr Sample samples[] = {{"float[5]", "shape=shape[4b,5]"},
                              {"float[4b,1]", "shape=shape[4b,3]"},
                              {"float[3,1,2]", "shape=shape[2,3,5,2]"},
                              {"int32[]", "shape=shape[3,2]"}};

bool is_one(const Dim& dim) { return dim.size == 1 && dim.sym == fixed_sym; }

std::vector<LogicalType> types(const RuleArgs& args) {
  auto& in = args.in[0].shape;
  LogicalType out{args.in[0].dtype, attr<Shape>(*args.attrs, "shape")};
  size_t extra = out.shape.size() - in.size();
  if (out.shape.size() < in.size()) refuse(args, Code::value, "the result has fewer dims: " + text_of(out.shape));
  for (size_t d = 0; d < in.size(); ++d) {
    auto& to = out.shape[d + extra];
    if (to.size == in[d].size && to.sym == fixed_sym) to = in[d];  // Python gives sizes, not symbols
    if (to != in[d] && !is_one(in[d]))
      refuse(args, Code::value, fmt::format("dim {} does not stretch to {}", d, text_of(out.shape)));
  }
  return {out};
}

std::vector<Signature> signatures(const RuleArgs& args) {
  auto& in = args.in[0].shape;
  Shape out = types(args)[0].shape;
  std::vector<Signature> list;
  size_t extra = out.size() - in.size();
  for (size_t d = 0; d < out.size(); ++d) {
    bool same = d >= extra && in[d - extra] == out[d];
    list.push_back({{same ? Sbp::split(int(d - extra)) : Sbp::broadcast()}, {Sbp::split(int(d))}});
  }
  list.push_back({{Sbp::partial()}, {Sbp::partial()}});
  return list;
}

void run(const Call& call) { copy_strided(call.out[0], call.in[0].data, broadcast_strides(call), call.threads); }

}  // namespace

[[gnu::weak]] DeviceKernel broadcast_to_cuda;

extern constinit const OpDef broadcast_to{
    .name = "broadcast_to",
    .doc = "`x` stretched to a shape: dims of size 1 and missing leading dims repeat.",
    .samples = samples,
    .inputs = "x",
    .attrs = attrs,
    .rule = {.types = types, .signatures = signatures},
    .grad = [](GradArgs& args) { args.result[0] = args.build.unbroadcast(args.grad[0], args.in(0)); },
    .cpu = run,
    .cuda = broadcast_to_cuda,
};
#endif

}  // namespace sluice::ops
