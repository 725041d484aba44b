// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Pow {
  template <class T>
  constexpr T operator()(T x, T y) const {
    return std::pow(x, y);
  }
};

}  // namespace

#ifdef __CUDACC__
void pow_cuda(const Call& call) { float_map_cuda<Pow, 2>(call); }
#else
namespace {

constexpr Sample samples[] = {
    {"float[4b,5]>0.2 float[4b,5]"}, {"float[4b,5]>0.2 float[]"}, {"float[2,1]>0.2 float[5]"}};

}  // namespace

[[gnu::weak]] DeviceKernel pow_cuda;

extern constinit const OpDef pow{
    .name = "pow",
    .doc = "`x` to the power `y`, element by element.",
    .samples = samples,
    .inputs = "x,y",
    .rule = {.index = "*,*->*", .promote_mask = 3, .types = types_float},
    .grad =
        [](GradArgs& args) {
          auto& b = args.build;
          DType dtype = b.type(args.out(0)).dtype;
          TensorId x = args.in(0), y = args.in(1), zero = b.constant(0, dtype);
          TensorId slope = b.op("multiply", {y, b.op("pow", {x, b.op("subtract", {y, b.constant(1, dtype)})})});
          args.result[0] = b.unbroadcast(b.op("multiply", {args.grad[0], slope}), x);
          // 0 to the power y does not change with y >= 0, where log gives no number.
          TensorId flat = b.op("equal", {args.out(0), zero});
          TensorId rate = b.op("where", {flat, zero, b.op("multiply", {args.out(0), b.op("log", {x})})});
          args.result[1] = b.unbroadcast(b.op("multiply", {args.grad[0], rate}), y);
        },
    .tile = tile_of<Pow, 2>(),
    .cuda = pow_cuda,
    .alias = 3,
    .method = true,
};
#endif

}  // namespace sluice::ops
