// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Maximum {
  template <class T>
  constexpr T operator()(T x, T y) const {
    return (x > y) | (x != x) ? x : y;
  }
};

}  // namespace

#ifdef __CUDACC__
void maximum_cuda(const Call& call) { number_map_cuda<Maximum, 2>(call); }
#else
namespace {

std::vector<Signature> signatures_of_maximum(const RuleArgs& args) {
  auto list = index_signatures(args);
  Sbp partial{Sbp::Pmax, -1};
  list.push_back({{partial, partial}, {partial}});
  return list;
}

constexpr Sample samples[] = {{"float[4b,5] float[4b,5]"}, {"float[4b,5] float[5]"}, {"int32[7] int32[7]"}};

}  // namespace

[[gnu::weak]] DeviceKernel maximum_cuda;

extern constinit const OpDef maximum{
    .name = "maximum",
    .doc =
        "The larger of `x` and `y`, element by element; NaN where either is NaN. Where they are equal, each gets half "
        "of the gradient.",
    .samples = samples,
    .inputs = "x,y",
    .rule = {.index = "*,*->*", .promote_mask = 3, .types = types_number, .signatures = signatures_of_maximum},
    .grad =
        [](GradArgs& args) {
          auto& b = args.build;
          DType dtype = b.type(args.out(0)).dtype;
          TensorId zero = b.constant(0, dtype), half = b.op("multiply", {args.grad[0], b.constant(0.5, dtype)});
          TensorId equal = b.op("equal", {args.in(0), args.in(1)});
          for (size_t i = 0; i < 2; ++i) {
            TensorId wins = b.op("greater", {args.in(i), args.in(1 - i)});
            TensorId whole = b.op("where", {wins, args.grad[0], zero});
            args.result[i] = b.unbroadcast(b.op("where", {equal, half, whole}), args.in(i));
          }
        },
    .tile = tile_of<Maximum, 2>(),
    .cpu = number_map<Maximum, 2>,
    .cuda = maximum_cuda,
    .alias = 3,
    .method = true,
};
#endif

}  // namespace sluice::ops
