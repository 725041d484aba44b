// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/build.h"
#include "kernels/narrow.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

// A float outside of an integer's range becomes the nearest end of it; NaN becomes 0.
template <class To, class From>
constexpr To convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    constexpr From low = From(std::numeric_limits<To>::min()), high = From(std::numeric_limits<To>::max());
    if (x != x) return 0;
    if (x <= low) return std::numeric_limits<To>::min();
    return x >= high ? std::numeric_limits<To>::max() : To(x);
  } else {
    return To(x);
  }
}

template <class To, class From>
constexpr To converted(From x) {
  if constexpr (is_narrow<From> && is_narrow<To>)
    return To::narrow(From::widen(x));
  else if constexpr (is_narrow<From>)
    return convert<To>(From::widen(x));
  else if constexpr (is_narrow<To>)
    return To::narrow(float(x));
  else
    return convert<To>(x);
}

template <class F>
void visit_any(DType dtype, F f) {
  if (dtype == DType::bfloat16) return f(Tag<BFloat16>{});
  if (dtype == DType::float16) return f(Tag<Float16>{});
  visit_dtype(dtype, f);
}

}  // namespace

#ifdef __CUDACC__
namespace {

template <class To, class From>
__device__ To converted_at(const void* in, int64_t i) {
  return converted<To>(static_cast<const From*>(in)[i]);
}

template <class To>
__device__ To converted_from(const void* in, DType from, int64_t i) {
  switch (from) {
    case DType::float32: return converted_at<To, float>(in, i);
    case DType::float64: return converted_at<To, double>(in, i);
    case DType::bfloat16: return converted_at<To, BFloat16>(in, i);
    case DType::float16: return converted_at<To, Float16>(in, i);
    case DType::int8: return converted_at<To, int8_t>(in, i);
    case DType::int16: return converted_at<To, int16_t>(in, i);
    case DType::int32: return converted_at<To, int32_t>(in, i);
    case DType::int64: return converted_at<To, int64_t>(in, i);
    case DType::uint8: return converted_at<To, uint8_t>(in, i);
    default: return converted_at<To, bool>(in, i);
  }
}

// One kernel for a result: what it converts from is one branch for all elements, next to the cost of reading them.
template <class To>
__global__ void convert_any(const void* in, DType from, To* out, int64_t n) {
  for (int64_t i = thread_index(); i < n; i += thread_stride()) out[i] = converted_from<To>(in, from, i);
}

}  // namespace

void astype_cuda(const Call& call) {
  CudaQueue& queue = queue_of(call);
  int64_t n = call.out[0].numel();
  if (n == 0) return;
  visit_any(call.out[0].dtype, [&]<class To>(Tag<To>) {
    launch(queue, blocks_for(queue, n), cuda_threads, convert_any<To>, call.in[0].as<const void>(), call.in[0].dtype,
           call.out[0].as<To>(), n);
  });
}
#else
namespace {

template <class To, class From>
void convert_row(To* out, const From* in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = converted<To>(in[i]);
}

using Row = void (*)(void* out, const void* in, int64_t n);

Row row_of(DType from, DType to) {
  Row row = nullptr;
  visit_any(from, [&]<class From>(Tag<From>) {
    visit_any(to, [&]<class To>(Tag<To>) {
      row = [](void* out, const void* in, int64_t n) {
        convert_row(static_cast<To*>(out), static_cast<const From*>(in), n);
      };
    });
  });
  return row;
}

void run(const Call& call) {
  Row row = row_of(call.in[0].dtype, call.out[0].dtype);
  run_rows(call, [row](void* out, const void* const* in, int64_t n, uint32_t) { row(out, in[0], n); });
}

constexpr AttrDef attrs[] = {{AttrDef::dtype, "dtype", "The dtype to convert to.", ""}};
constexpr Sample samples[] = {{"float[4b,5]", "dtype=dtype:float64"}, {"float[4b,5]", "dtype=dtype:float32"},
                              {"int32[7]<9", "dtype=dtype:float32"},  {"float[7]", "dtype=dtype:int64"},
                              {"bool[4b,3]", "dtype=dtype:float64"},  {"float[5]", "dtype=dtype:bool"}};

std::vector<LogicalType> types(const RuleArgs& args) { return {{attr<DType>(*args.attrs, "dtype"), args.in[0].shape}}; }

// A sum may be taken after the conversion where no part is cut off.
std::vector<Signature> signatures(const RuleArgs& args) {
  auto list = index_signatures(args);
  if (is_compute_float(attr<DType>(*args.attrs, "dtype")) && is_compute_float(args.in[0].dtype))
    list.push_back({{Sbp::partial()}, {Sbp::partial()}});
  return list;
}

}  // namespace

[[gnu::weak]] DeviceKernel astype_cuda;

extern constinit const OpDef astype{
    .name = "astype",
    .doc = "`x` converted to another dtype. A real becomes an integer by cutting off its fraction.",
    .samples = samples,
    .inputs = "x",
    .attrs = attrs,
    .rule = {.index = "*->*", .types = types, .signatures = signatures},
    .grad =
        [](GradArgs& args) {
          DType from = args.build.type(args.in(0)).dtype;
          if (is_float(from) && is_float(args.build.type(args.out(0)).dtype))
            args.result[0] = args.build.op("astype", {args.grad[0]}, {{"dtype", from}});
        },
    .cpu = run,
    .cuda = astype_cuda,
    .method = true,
};
#endif

}  // namespace sluice::ops
