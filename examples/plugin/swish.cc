// SPDX-License-Identifier: Apache-2.0
// An op outside of the tree, complete: swish(x) = x * sigmoid(beta * x). From the shapes and the placement to the
// gradient and the fused kernel, all that Sluice knows of it is the aggregate below.
//
//   g++ -std=c++20 -O2 -fopenmp-simd -fPIC -shared -I SLUICE swish.cc -o swish.so -L SITE/sluice -lsluice
//
// with SLUICE the source tree and SITE the folder of Python's packages. In Python: `sl.load_ops("swish.so").swish(x)`;
// a config that such a job runs under has `[plugins] ops = ["swish.so"]`.
#include "kernels/build.h"
#include "kernels/lane_math.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + lane_exp(-x));
}

// The formulas get the attributes in the order in which they are declared.
struct Swish {
  double beta;
  explicit Swish(const double* params) : beta(params[0]) {}
  template <class T>
  T operator()(T x) const {
    return x * sigmoid(T(beta) * x);
  }
};

struct SwishGrad {
  double beta;
  explicit SwishGrad(const double* params) : beta(params[0]) {}
  template <class T>
  T operator()(T x, T grad) const {
    T s = sigmoid(T(beta) * x);
    return grad * (s + T(beta) * x * s * (T(1) - s));
  }
};

constexpr AttrDef attrs[] = {{AttrDef::real, "beta", "How steep it is: 0 halves, large is relu.", "1.0"}};
constexpr Sample samples[] = {{"float[4b,5]", "beta=1.5"}};
constexpr Sample grad_samples[] = {{"float[4b,5] float[4b,5]", "beta=1.5"}};

constexpr OpDef swish_grad{
    .name = "swish_grad",
    .doc = "The gradient of swish, given its input and the gradient of its output.",
    .samples = grad_samples,
    .inputs = "x,grad",
    .attrs = attrs,
    .rule = {.index = "*,*->*", .types = types_float},
    .tile = tile_of<SwishGrad, 2>(),
    .alias = 3,
    .hidden = true,
};

constexpr OpDef swish{
    .name = "swish",
    .doc = "`x` times the logistic function of `beta * x`.",
    .samples = samples,
    .inputs = "x",
    .attrs = attrs,
    .rule = {.index = "*->*", .types = types_float},
    .grad =
        [](GradArgs& args) {
          args.result[0] = args.build.op("swish_grad", {args.in(0), args.grad[0]}, args.node.attrs);
        },
    .tile = tile_of<Swish, 1>(),
    .alias = 1,
};

}  // namespace
}  // namespace sluice::ops

extern "C" const sluice::OpDef* const* sluice_ops(size_t* count) {
  static constexpr const sluice::OpDef* table[] = {&sluice::ops::swish, &sluice::ops::swish_grad};
  *count = std::size(table);
  return table;
}
