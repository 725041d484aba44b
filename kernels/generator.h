// SPDX-License-Identifier: Apache-2.0
// What ops without inputs that draw a tensor of a given shape share.
// Thread rule: pure functions.
#pragma once
#include "kernels/random.h"
#include "kernels/rule.h"
#ifdef __CUDACC__
#include "kernels/random_cuda.h"
#endif

namespace sluice {

// The type by the attributes `shape` and `dtype`: float32 or float64.
inline std::vector<LogicalType> generator_types(const RuleArgs& args) {
  DType dtype = attr<DType>(*args.attrs, "dtype");
  if (!is_compute_float(dtype)) refuse(args, Code::type, "draws float32 or float64", "convert with astype");
  auto& shape = attr<Shape>(*args.attrs, "shape");
  for (auto& dim : shape)
    if (dim.size < 0) refuse(args, Code::value, "the shape " + text_of(shape) + " has a negative size");
  return {{dtype, shape}};
}

// Each part can be drawn where it is needed: any split, or everything everywhere.
inline std::vector<Signature> generator_signatures(const RuleArgs& args) {
  std::vector<Signature> list;
  for (size_t d = 0; d < attr<Shape>(*args.attrs, "shape").size(); ++d) list.push_back({{}, {Sbp::split(int(d))}});
  return list;
}

// out[...] = draw(key, index of the element).
template <class Draw>
void generate(const Call& call, Draw draw) {
  RandomKey key = random_key_of(call);
  visit_dtype(call.out[0].dtype, [&]<class T>(Tag<T>) {
    for_random_runs(call.out[0], call.threads, [&](int64_t local, uint64_t index, int64_t n) {
      T* out = call.out[0].as<T>() + local;
      for (int64_t i = 0; i < n; ++i) out[i] = T(draw(key, index + uint64_t(i)));
    });
  });
}

}  // namespace sluice
