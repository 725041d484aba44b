// SPDX-License-Identifier: Apache-2.0
// For tests: tensors on the host, samples of ops as data, and one op run on them.
// Thread rule: values.
#pragma once
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/build.h"
#include "tests/on_device.h"

namespace sluice::test {

struct HostTensor {
  DType dtype = DType::float32;
  std::vector<int64_t> dims;
  std::vector<uint64_t> store;  // aligned memory

  HostTensor() = default;
  HostTensor(DType type, std::vector<int64_t> sizes) : dtype(type), dims(std::move(sizes)) {
    store.resize(size_t(numel() * bytes_of(dtype) + 7) / 8 + 8, 0xabababababababab);
  }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
  double get(int64_t i) const {
    double value = 0;
    visit_dtype(dtype, [&]<class T>(Tag<T>) { value = double(reinterpret_cast<const T*>(store.data())[i]); });
    return value;
  }
  void set(int64_t i, double value) {
    visit_dtype(dtype, [&]<class T>(Tag<T>) { reinterpret_cast<T*>(store.data())[i] = T(value); });
  }
};

// An operand of a Sample: "float[4b,5]>0.5".
struct Operand {
  LogicalType type;
  bool has_low = false, has_below = false;
  double low = 0, below = 0;
};

inline std::vector<std::string> words(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> list;
  for (std::string word; stream >> word;) list.push_back(word);
  return list;
}

// `real` stands for "float". An unreadable sample throws Error.
inline std::vector<Operand> operands_of(const Sample& sample, DType real) {
  std::vector<Operand> list;
  for (auto& word : words(sample.in)) {
    size_t open = word.find('['), close = word.find(']');
    if (open == word.npos || close == word.npos) throw Error(Code::value, "'" + word + "' is no operand");
    Operand operand;
    std::string dtype = word.substr(0, open), domain = word.substr(close + 1);
    auto parsed = parse_dtype(dtype);
    if (!parsed && dtype != "float") throw Error(Code::value, "'" + dtype + "' is no dtype");
    operand.type = {parsed.value_or(real), std::get<Shape>(parse_attr("shape" + word.substr(open, close + 1 - open)))};
    operand.has_low = !domain.empty() && domain[0] == '>';
    operand.has_below = !domain.empty() && domain[0] == '<';
    if (operand.has_low) operand.low = std::stod(domain.substr(1));
    if (operand.has_below) operand.below = std::stod(domain.substr(1));
    list.push_back(operand);
  }
  return list;
}

inline Attrs attrs_of(const OpDef& op, const Sample& sample) {
  Attrs attrs;
  for (auto& word : words(sample.attrs)) {
    size_t equals = word.find('=');
    if (equals == word.npos) throw Error(Code::value, "'" + word + "' is no attribute");
    attrs.push_back({word.substr(0, equals), parse_attr(word.substr(equals + 1))});
  }
  return complete_attrs(op, attrs);
}

inline std::vector<LogicalType> types_of(const std::vector<Operand>& operands) {
  std::vector<LogicalType> types;
  for (auto& operand : operands) types.push_back(operand.type);
  return types;
}

// The sizes of a logical tensor in a window.
inline std::vector<int64_t> sizes_in(const Shape& shape, const Window& window) {
  std::vector<int64_t> sizes;
  for (auto& range : local_box(shape, {}, {}, {}, window).dims) sizes.push_back(range.size);
  return sizes;
}

inline HostTensor random_tensor(const Operand& operand, const Window& window, std::mt19937& random) {
  HostTensor tensor(operand.type.dtype, sizes_in(operand.type.shape, window));
  std::uniform_real_distribution<double> real(operand.has_low ? operand.low : -2,
                                              operand.has_low ? operand.low + 2 : 2);
  bool is_unsigned = tensor.dtype == DType::uint8;
  std::uniform_int_distribution<int> integer(operand.has_below || is_unsigned ? 0 : -5,
                                             operand.has_below ? int(operand.below) - 1 : 5);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (tensor.dtype == DType::bool_)
      tensor.set(i, double(random() % 2));
    else
      tensor.set(i, is_float(tensor.dtype) ? real(random) : double(integer(random)));
  }
  return tensor;
}

// Calls visit(index in `whole`, index in the box) for each element of a box, row-major.
template <class F>
void for_box(const std::vector<int64_t>& whole, const Box& box, F visit) {
  int64_t n = box.numel();
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, at = 0, step = 1;
    for (size_t d = whole.size(); d-- > 0;) {
      at += (box.dims[d].begin + rest % box.dims[d].size) * step;
      rest /= box.dims[d].size;
      step *= whole[d];
    }
    visit(at, i);
  }
}

inline std::vector<int64_t> sizes_of(const Box& box) {
  std::vector<int64_t> sizes;
  for (auto& range : box.dims) sizes.push_back(range.size);
  return sizes;
}

inline HostTensor slice(const HostTensor& tensor, const Box& box) {
  HostTensor part(tensor.dtype, sizes_of(box));
  auto bytes = size_t(bytes_of(tensor.dtype));
  for_box(tensor.dims, box, [&](int64_t from, int64_t to) {
    std::memcpy(reinterpret_cast<char*>(part.store.data()) + size_t(to) * bytes,
                reinterpret_cast<const char*>(tensor.store.data()) + size_t(from) * bytes, bytes);
  });
  return part;
}

inline View view_of(HostTensor& tensor, const LogicalType& type, const Window& window, const Box& box) {
  View view;
  view.data = tensor.store.data();
  view.dtype = tensor.dtype;
  view.rank = int(tensor.dims.size());
  auto origin = window_origin(type.shape, window);
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    view.dims[d] = tensor.dims[d];
    view.origin[d] = origin[d] + box.dims[d].begin;
    view.whole[d] = type.shape[d].size;
  }
  return view;
}

// One op on one rank.
struct OpRun {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<LogicalType> in_types, out_types;
  Window window;
  uint64_t key = 7;
  int threads = 1;
  int alias_input = -1;     // this input's memory is output 0's
  uint32_t col_inputs = 0;  // these inputs come in layout "col"

  Box whole(const LogicalType& type) const { return local_box(type.shape, {}, {}, {}, window); }

  // On the CPU; and on the device under test, whose results are those that are returned.
  std::vector<HostTensor> run(const std::vector<HostTensor>& in, const std::vector<Box>& in_boxes,
                              const std::vector<Box>& out_boxes) const {
    auto want = run_on(false, in, in_boxes, out_boxes);
    if (!device_under_test()) return want;
    auto have = run_on(true, in, in_boxes, out_boxes);
    for (size_t o = 0; o < want.size(); ++o)
      for (int64_t i = 0; i < want[o].numel(); ++i)
        if (!near(want[o].dtype, have[o].get(i), want[o].get(i))) {
          ADD_FAILURE() << op->name << " gives " << have[o].get(i) << " on device " << device_under_test()->kind()
                        << " and " << want[o].get(i) << " on the CPU, element " << i << " of output " << o;
          return have;
        }
    return have;
  }

  std::vector<HostTensor> run_on(bool device, std::vector<HostTensor> in, const std::vector<Box>& in_boxes,
                                 const std::vector<Box>& out_boxes) const {
    std::vector<HostTensor> out;
    for (size_t o = 0; o < out_boxes.size(); ++o) out.emplace_back(out_types[o].dtype, sizes_of(out_boxes[o]));
    std::vector<View> in_views, out_views;
    for (size_t i = 0; i < in.size(); ++i) {
      if (col_inputs >> i & 1) to_col(in[i]);
      in_views.push_back(view_of(in[i], in_types[i], window, in_boxes[i]));
      in_views.back().col = col_inputs >> i & 1;
    }
    for (size_t o = 0; o < out.size(); ++o) out_views.push_back(view_of(out[o], out_types[o], window, out_boxes[o]));
    if (alias_input >= 0) out_views[0].data = in_views[size_t(alias_input)].data;
    std::vector<uint64_t> workspace(
        op->workspace_bytes ? size_t(op->workspace_bytes(in_types, out_types, attrs)) / 8 + 16 : 16);
    Call call;
    call.in = in_views;
    call.out = out_views;
    call.in_types = in_types;
    call.out_types = out_types;
    call.attrs = &attrs;
    call.workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
    call.seed = 1;
    call.op_key = key;
    call.step = 3;
    call.window = &window;
    call.threads = threads;
    execute(device, call);
    if (alias_input >= 0) out[0].store = in[size_t(alias_input)].store;
    return out;
  }

  std::vector<HostTensor> run_whole(const std::vector<HostTensor>& in) const {
    std::vector<Box> in_boxes, out_boxes;
    for (auto& type : in_types) in_boxes.push_back(whole(type));
    for (auto& type : out_types) out_boxes.push_back(whole(type));
    return run(in, in_boxes, out_boxes);
  }

 private:
  void execute(bool device, Call& call) const {
    int micros = op->rate == Rate::accumulate ? 2 : 1;
    std::unique_ptr<DeviceCall> there;
    if (device) there = std::make_unique<DeviceCall>(call);
    for (call.micro_batch = 0; call.micro_batch < micros; ++call.micro_batch)
      there ? there->run(*op, call.micro_batch) : run_cpu(*op, call);
    if (there) there->finish();
  }

  static void to_col(HostTensor& tensor) {
    HostTensor swapped = tensor;
    size_t rank = tensor.dims.size();
    int64_t m = tensor.dims[rank - 2], n = tensor.dims[rank - 1], count = m * n == 0 ? 0 : tensor.numel() / (m * n);
    for (int64_t c = 0; c < count; ++c)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) swapped.set(c * m * n + j * m + i, tensor.get(c * m * n + i * n + j));
    tensor.store = swapped.store;
  }
};

}  // namespace sluice::test
