// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/build.h"
#include "kernels/random.h"
#include "kernels/rule.h"
#include "kernels/simd.h"

namespace sluice::ops {
namespace {

std::vector<LogicalType> types(const RuleArgs& args) {
  double p = attr<double>(*args.attrs, "p");
  if (!(p >= 0 && p <= 1)) refuse(args, Code::value, "p is " + text_of(AttrValue(p)) + ", not a probability");
  return types_float(args);
}

// The same op with the forward node's key draws the same mask.
void grad(GradArgs& g) {
  auto key = attr<std::string>(g.node.attrs, "key");
  g.result[0] = g.build.op("dropout", {g.grad[0]},
                           {{"p", attr<double>(g.node.attrs, "p")}, {"key", key.empty() ? g.node.name : key}});
}

template <class T>
void run(const Call& call) {
  constexpr int64_t chunk = 256;
  double p = call.attr<double>("p");
  // An element stays where uniform(index) >= p, said in the generator's 24 bits.
  auto dropped = uint32_t(std::ceil(p * 16777216.0));
  T scale = p < 1 ? T(1 / (1 - p)) : T(0);
  RandomKey key = random_key_of(call);
  const T* in = call.in[0].as<T>();
  T* out = call.out[0].as<T>();
  for_random_runs(call.out[0], call.threads, [&](int64_t local, uint64_t index, int64_t n) {
    uint32_t bits[chunk];
    for (int64_t done = 0; done < n; done += chunk) {
      int64_t count = std::min(chunk, n - done);
      random_bits(key, index + uint64_t(done), count, bits);
      const T* x = in + local + done;
      T* y = out + local + done;
      vectorized([&] {
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) y[i] = (bits[i] >> 8) < dropped ? T(0) : x[i] * scale;
      });
    }
  });
}

constexpr AttrDef attrs[] = {
    {AttrDef::real, "p", "The probability that an element becomes zero.", "0.5"},
    {AttrDef::text, "key", "The node whose numbers are drawn; \"\" is this one.", "\"\""},
};
constexpr Sample samples[] = {{"float[4b,7]", "p=0.5"}, {"float[3,4b,2]", "p=0.1"}, {"float[6]", "p=0.0"}};

}  // namespace

extern constinit const OpDef dropout{
    .name = "dropout",
    .doc = "Zeroes each element with probability `p` and multiplies the others by 1/(1-p).",
    .samples = samples,
    .inputs = "x",
    .attrs = attrs,
    .rule = {.index = "*->*", .linear = 1, .types = types},
    .grad = grad,
    .cpu = [](const Call& call) { call.out[0].dtype == DType::float32 ? run<float>(call) : run<double>(call); },
    .alias = 1,
    .random = true,
};

}  // namespace sluice::ops
