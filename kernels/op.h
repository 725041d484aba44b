// SPDX-License-Identifier: Apache-2.0
// OpDef: everything the system knows about one op, in one aggregate in one file of kernels/ops/.
// The table of all ops is written by CMake from the folder listing and passed from main: no registry.
// Thread rule: OpDefs are constants; functions in them are pure but for the buffers they are handed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/philox.h"
#include "graph/graph.h"
#include "placement/sbp.h"

namespace sluice {

struct OpDef;
class OpTable;
class Builder;

// ---- what a kernel sees ------------------------------------------------------------------------------------------

// One local tensor: dense, row-major, or with the last two dims swapped in memory (layout "col").
struct View {
  void* data = nullptr;
  DType dtype = DType::float32;
  int rank = 0;
  bool col = false;                        // memory order is the last two dims swapped
  std::array<int64_t, rank_max> dims{};    // local and valid (never the bound)
  std::array<int64_t, rank_max> origin{};  // where this part starts in the whole batch's logical tensor
  std::array<int64_t, rank_max> whole{};   // the logical bound: random numbers are drawn by index into it

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= dims[size_t(d)];
    return n;
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

struct Call {
  std::span<const View> in;
  std::span<const View> out;
  std::span<const LogicalType> in_types, out_types;  // logical, with their symbols: global counts come from these
  const Attrs* attrs = nullptr;
  void* workspace = nullptr;  // 64-byte aligned, workspace_bytes() long
  uint64_t seed = 0;
  uint64_t op_key = 0;  // name_hash of the node's name
  int64_t step = 0;
  int32_t micro_batch = 0;  // which firing within the step: `accumulate` starts over at 0
  const Window* window = nullptr;
  int threads = 1;     // of this device's team
  bool exact = false;  // reduction_order = "exact"
  // DeviceStream::queue() of the stream that this call goes to; null: the op runs here and now. See run_op.
  void* queue = nullptr;

  template <class T>
  const T& attr(std::string_view name) const {
    return sluice::attr<T>(*attrs, name);
  }
  RandomKey random_key(int64_t at_step) const { return {seed, op_key, at_step}; }
};
// May throw Error (a bad index, say): the stream turns it into one `failed` message.
using Kernel = void (*)(const Call&);
// A kernel of nvcc's, which enqueues on call.queue. It stands in the op's own file, in the part that nvcc sees; the
// rest of the file declares it weak, so that it is null in a build without nvcc:  [[gnu::weak]] DeviceKernel relu_cuda;
using DeviceKernel = void(const Call&);

// ---- rules: shapes, dtypes and SBP signatures ----------------------------------------------------------------------

struct Signature {
  std::vector<Sbp> in, out;  // on one mesh axis
  bool operator==(const Signature&) const = default;
};

struct RuleArgs {
  const OpDef* op = nullptr;
  std::span<const LogicalType> in;
  const Attrs* attrs = nullptr;
};

// The rule of an op. `index` covers most ops, e.g. "mk,kn->mn":
//   a letter kept in the output may be split there (S -> S), a letter summed away yields P, a letter that an operand
//   lacks makes that operand B; '*' is any number of leading dims with NumPy's broadcasting (an operand dim of size 1
//   against a larger one is B there); '!k' must stay whole; the all-B signature always exists.
// `linear` adds the signatures in which P passes: 1: all inputs P at once (add); 2: one input P, the others B (mul).
// The inputs that `linear = 2` may make partial: bit i of partial_mask (default: all).
// `types` replaces or completes the output types (dtypes too); `signatures` replaces the derived list.
// Without `types` all inputs have one dtype, and the outputs' dtype is theirs. More helpers: kernels/rule.h.
struct Rule {
  std::string_view index;
  int linear = 0;
  uint32_t partial_mask = ~0u;
  // Bit i: before the op, the builder brings input i to the common dtype of these inputs (array API promotion).
  uint32_t promote_mask = 0;
  std::vector<LogicalType> (*types)(const RuleArgs&) = nullptr;
  std::vector<Signature> (*signatures)(const RuleArgs&) = nullptr;
};

// Output types of an op applied to `in`. Throws Error(value|type) that names the op, the shapes and the reason.
std::vector<LogicalType> infer_types(const OpDef& op, std::span<const LogicalType> in, const Attrs& attrs);
// Every legal signature on one axis (of any size), all-B last, no duplicates. A dim is offered for a split by its
// logical shape; uneven and even empty pieces are legal.
std::vector<Signature> signatures_of(const OpDef& op, std::span<const LogicalType> in, const Attrs& attrs);

// ---- the rest of an op ----------------------------------------------------------------------------------------------

struct AttrDef {
  enum Kind : uint8_t { boolean, integer, real, text, integers, shape, dtype } kind = integer;
  std::string_view name, doc;
  std::string_view default_text;  // "": required; else parsed by parse_attr
};

// Appends nodes that compute the inputs' gradients. Differentiation is of the logical graph: no SBP here.
struct GradArgs {
  Builder& build;
  const Node& node;
  std::span<const TensorId> grad;  // of each output; no_tensor: none flows back
  std::span<TensorId> result;      // of each input; leave no_tensor where there is none
  TensorId in(size_t i) const { return node.inputs[i]; }
  TensorId out(size_t i) const { return node.outputs[i]; }
};

// Element-wise block kernel: the same formula for every float lane; a fused chain interprets these over cache-sized
// blocks. `n` elements; in[i] has n elements, or one where bit i of scalar_mask is set.
struct Tile {
  void (*f32)(float* out, const float* const* in, int64_t n, uint32_t scalar_mask, const double* params) = nullptr;
  void (*f64)(double* out, const double* const* in, int64_t n, uint32_t scalar_mask, const double* params) = nullptr;
  explicit operator bool() const { return f32 != nullptr; }
};

struct Cost {
  double flops = 0, bytes = 0;
};

// A state of an optimizer op: input `input` is it, output `output` its next value.
struct StateDef {
  std::string_view name;  // PyTorch's: "exp_avg", "exp_avg_sq", "step", "momentum_buffer"
  int input = 0, output = 0;
  bool scalar = false;  // a float32 scalar, else of the parameter's type; all states start at zero
};

// Firing rates: accumulate takes a token each micro-batch and emits one a step.
enum class Rate : uint8_t { same, accumulate };

// Whether output 0 is input 0's memory, so that the op costs nothing:
//   same  always, in row layout (reshape);  swap  the last two dims change places, row <-> col (matrix_transpose):
//   when a consumer does not take "col", the planner keeps the node as a copy and `cpu` runs.
enum class ViewKind : uint8_t { none, same, swap };

// A sample call, for the test over all ops and for the docs. `in`: operands separated by spaces, each
// DTYPE[DIMS] with an optional domain: "<n" integers in [0,n), ">x" reals above x. "float" stands for float32 and
// float64 in turn; a dim "4b" is the batch symbol. `attrs`: "axis=[0] keepdims=true" in text_of(AttrValue) form.
struct Sample {
  std::string_view in, attrs;
};

struct OpDef {
  std::string_view name, doc;
  std::span<const Sample> samples;  // at least one
  std::string_view inputs;  // argument names for Python and messages: "x,weight,bias"; "tensors..." takes one or more
  std::span<const AttrDef> attrs;
  Rule rule;
  void (*grad)(GradArgs&) = nullptr;
  Tile tile;  // element-wise ops; cpu may then be null
  Kernel cpu = nullptr, cuda = nullptr;
  int64_t (*workspace_bytes)(std::span<const LogicalType> in, std::span<const LogicalType> out, const Attrs&) = nullptr;
  uint32_t alias = 0;  // bit i: output 0 may take input i's buffer when that dies here
  ViewKind view = ViewKind::none;
  uint32_t col_mask = 0;  // bit i: input i may come in layout "col"
  Cost (*cost)(std::span<const LogicalType> in, std::span<const LogicalType> out, const Attrs&) = nullptr;
  std::span<const StateDef> states;  // not empty: an optimizer; inputs (param, grad, states...), output 0 the new param
  Rate rate = Rate::same;
  bool random = false;  // draws from the counter: never folded, merged or run twice differently
  bool hidden = false;  // no public Python function (used by passes and gradients only)
  bool method = false;  // also a method of Tensor
};

// The name of a built-in op's array: written by CMake; ops of plug-ins are appended by the one load point.
class OpTable {
 public:
  explicit OpTable(std::vector<const OpDef*> ops);  // sorted by name; a duplicate throws Error
  const OpDef* find(std::string_view name) const;   // null: no such op
  const OpDef& at(std::string_view name) const;     // throws Error(not_found) with the nearest name
  std::span<const OpDef* const> all() const { return ops_; }

 private:
  std::vector<const OpDef*> ops_;
};
std::span<const OpDef* const> builtin_ops();

// Cost by the op's own function, else nothing for a view, else 1 flop an output element and the bytes of all operands.
Cost cost_of(const OpDef& op, std::span<const LogicalType> in, std::span<const LogicalType> out, const Attrs& attrs);
// Attributes completed with defaults and checked against `op.attrs` (order as declared). Throws Error.
Attrs complete_attrs(const OpDef& op, const Attrs& attrs);
// Runs the op on the CPU: `cpu`, else the tile loop with broadcasting.
void run_cpu(const OpDef& op, const Call& call);
// Runs the op where the call says: on the CPU, or enqueued by its device kernel.
void run_op(const OpDef& op, const Call& call);

}  // namespace sluice
