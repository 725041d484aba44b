// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/build.h"
#include "kernels/random.h"
#ifdef __CUDACC__
#include "kernels/random_cuda.h"
#endif
#include "kernels/rule.h"
#include "kernels/simd.h"

namespace sluice::ops {
namespace {

// An element stays where uniform(index) >= p, said in the generator's 24 bits.
template <class T>
struct DropoutRule {
  uint32_t dropped;
  T scale;
  explicit DropoutRule(double p) : dropped(uint32_t(std::ceil(p * 16777216.0))), scale(p < 1 ? T(1 / (1 - p)) : T(0)) {}
  constexpr T operator()(uint32_t bits, T x) const { return (bits >> 8) < dropped ? T(0) : x * scale; }
};

}  // namespace

#ifdef __CUDACC__
namespace {

template <class T>
__global__ void drop(DropoutRule<T> rule, RandomKey key, WholeIndex index, int64_t n, const T* in, T* out) {
  for (int64_t i = thread_index(); i < n; i += thread_stride()) out[i] = rule(key.bits(index.of(i)), in[i]);
}

template <class T>
void run_dropout(const Call& call) {
  CudaQueue& queue = queue_of(call);
  int64_t n = call.out[0].numel();
  if (n == 0) return;
  launch(queue, blocks_for(queue, n), cuda_threads, drop<T>, DropoutRule<T>(call.attr<double>("p")),
         random_key_of(call), WholeIndex(call.out[0]), n, call.in[0].as<const T>(), call.out[0].as<T>());
}

}  // namespace

void dropout_cuda(const Call& call) {
  call.out[0].dtype == DType::float32 ? run_dropout<float>(call) : run_dropout<double>(call);
}
#else
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
  DropoutRule<T> rule(call.attr<double>("p"));
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
        for (int64_t i = 0; i < count; ++i) y[i] = rule(bits[i], x[i]);
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

[[gnu::weak]] DeviceKernel dropout_cuda;

extern constinit const OpDef dropout{
    .name = "dropout",
    .doc = "Zeroes each element with probability `p` and multiplies the others by 1/(1-p).",
    .samples = samples,
    .inputs = "x",
    .attrs = attrs,
    .rule = {.index = "*->*", .linear = 1, .types = types},
    .grad = grad,
    .cpu = [](const Call& call) { call.out[0].dtype == DType::float32 ? run<float>(call) : run<double>(call); },
    .cuda = dropout_cuda,
    .alias = 1,
    .random = true,
};
#endif

}  // namespace sluice::ops
