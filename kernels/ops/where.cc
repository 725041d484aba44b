// SPDX-License-Identifier: Apache-2.0
#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

struct Where {
  template <class T>
  constexpr T operator()(bool condition, T x, T y) const {
    return condition ? x : y;
  }
};

}  // namespace

#ifdef __CUDACC__
void where_cuda(const Call& call) {
  visit_dtype(call.out[0].dtype, [&]<class T>(Tag<T>) { map_cuda<Where, T, bool, T, T>(call); });
}
#else
namespace {

constexpr Sample samples[] = {{"bool[4b,5] float[4b,5] float[4b,5]"},
                              {"bool[4b,1] float[5] float[]"},
                              {"bool[5] int32[4b,5] int32[4b,1]"},
                              {"bool[3] bool[3] bool[3]"}};

std::vector<LogicalType> types(const RuleArgs& args) {
  if (args.in[0].dtype != DType::bool_) refuse(args, Code::type, "the condition is not bool", "compare first");
  if (args.in[1].dtype != args.in[2].dtype || !computes(args.in[1].dtype))
    refuse(args, Code::type, "`x` and `y` need one dtype to compute with", "convert with astype");
  auto out = index_types(args);
  out[0].dtype = args.in[1].dtype;
  return out;
}

// Linear in x and y together.
std::vector<Signature> signatures(const RuleArgs& args) {
  auto list = index_signatures(args);
  list.push_back({{Sbp::broadcast(), Sbp::partial(), Sbp::partial()}, {Sbp::partial()}});
  return list;
}

void run(const Call& call) {
  visit_dtype(call.out[0].dtype, [&]<class T>(Tag<T>) {
    run_rows(call, [](void* out, const void* const* in, int64_t n, uint32_t scalar_mask) {
      map_row<Where, T, bool, T, T>(static_cast<T*>(out), in, n, scalar_mask, nullptr);
    });
  });
}

}  // namespace

[[gnu::weak]] DeviceKernel where_cuda;

extern constinit const OpDef where{
    .name = "where",
    .doc = "`x` where `condition` is true, else `y`, element by element.",
    .samples = samples,
    .inputs = "condition,x,y",
    .rule = {.index = "*,*,*->*", .promote_mask = 6, .types = types, .signatures = signatures},
    .grad =
        [](GradArgs& args) {
          auto& b = args.build;
          TensorId zero = b.constant(0, b.type(args.grad[0]).dtype);
          args.result[1] = b.unbroadcast(b.op("where", {args.in(0), args.grad[0], zero}), args.in(1));
          args.result[2] = b.unbroadcast(b.op("where", {args.in(0), zero, args.grad[0]}), args.in(2));
        },
    .cpu = run,
    .cuda = where_cuda,
    .alias = 6,
};
#endif

}  // namespace sluice::ops
