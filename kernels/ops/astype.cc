// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <limits>

#include "kernels/build.h"
#include "kernels/tile-inl.h"

namespace sluice::ops {
namespace {

// The storage types as wrappers of their bits, with conversions from and to float32 (to nearest even).
struct BFloat16 {
  uint16_t bits;
  explicit operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
  static BFloat16 from(float x) {
    uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {uint16_t(u >> 16 | 0x40)};  // NaN stays one
    return {uint16_t((u + 0x7fffu + (u >> 16 & 1)) >> 16)};
  }
};
struct Float16 {
  uint16_t bits;
  explicit operator float() const { return float(std::bit_cast<_Float16>(bits)); }
  static Float16 from(float x) { return {std::bit_cast<uint16_t>(_Float16(x))}; }
};

// A float outside of an integer's range becomes the nearest end of it; NaN becomes 0.
template <class To, class From>
To convert(From x) {
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

template <class F>
void visit_any(DType dtype, F f) {
  if (dtype == DType::bfloat16) return f(Tag<BFloat16>{});
  if (dtype == DType::float16) return f(Tag<Float16>{});
  visit_dtype(dtype, f);
}

template <class T>
inline constexpr bool is_storage = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

template <class To, class From>
void convert_row(To* out, const From* in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (is_storage<From> && is_storage<To>)
      out[i] = To::from(float(in[i]));
    else if constexpr (is_storage<From>)
      out[i] = convert<To>(float(in[i]));
    else if constexpr (is_storage<To>)
      out[i] = To::from(float(in[i]));
    else
      out[i] = convert<To>(in[i]);
  }
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
    .method = true,
};

}  // namespace sluice::ops
