// SPDX-License-Identifier: Apache-2.0
#include "actors/variables.h"

#include <algorithm>
#include <cstring>

namespace sluice {
namespace {

const PlanTensor& tensor_of(const Plan& plan, const PlanRegister& reg) {
  if (reg.tensors.empty()) throw Error(Code::value, "the register of variable '" + reg.variable + "' is empty");
  return plan.tensors[size_t(reg.tensors[0])];
}

[[noreturn]] void no_such(const std::string& name) {
  throw Error(Code::not_found, "the plan has no variable '" + name + "'");
}

// A rank's part within the logical tensor: `from` is the part, `to` the whole. The order of dims is the memory's.
Piece part_in_whole(const PlanTensor& tensor, const Mesh& mesh, int rank) {
  Extents bound{};
  for (auto& dim : tensor.type.shape)
    if (dim.sym != fixed_sym) bound[size_t(dim.sym)] = dim.size / dim.granule;
  Box box = local_box(tensor.type.shape, tensor.sbp, mesh, mesh.coords(rank), whole_window(bound));
  Piece piece;
  piece.peer = rank;
  for (auto& range : box.dims) {
    piece.from.push_back({0, range.size});
    piece.to.push_back(range);
    piece.from_dims.push_back(range.size);
  }
  piece.to_dims = sizes_of(tensor.type.shape);
  return piece;
}

Piece turned(Piece piece) {
  std::swap(piece.from, piece.to);
  std::swap(piece.from_dims, piece.to_dims);
  return piece;
}

// Swaps the last two dims of a dense array; `dims` are those of `from`.
std::vector<std::byte> transposed(const std::vector<std::byte>& from, const std::vector<int64_t>& dims, int64_t width) {
  std::vector<std::byte> to(from.size());
  int64_t rows = dims[dims.size() - 2], cols = dims.back(), matrix = rows * cols;
  int64_t matrices = matrix ? int64_t(from.size()) / width / matrix : 0;
  for (int64_t m = 0; m < matrices; ++m)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        std::memcpy(&to[size_t((m * matrix + c * rows + r) * width)],
                    &from[size_t((m * matrix + r * cols + c) * width)], size_t(width));
  return to;
}

bool is_col(const PlanTensor& tensor) { return tensor.layout == "col" && tensor.type.shape.size() >= 2; }

// Copies between host and device through pinned memory, and waits: only the client's calls do that.
class Copier {
 public:
  explicit Copier(Device& device) : device_(device), stream_(device.stream()) {}
  void in(std::byte* to, const std::vector<std::byte>& from) {
    with_pinned(from.size(), [&](std::byte* pinned) {
      std::copy(from.begin(), from.end(), pinned);
      device_.copy_in(*stream_, to, pinned, from.size());
      stream_->synchronize();
    });
  }
  std::vector<std::byte> out(const std::byte* from, size_t bytes) {
    std::vector<std::byte> to(bytes);
    with_pinned(bytes, [&](std::byte* pinned) {
      device_.copy_out(*stream_, pinned, from, bytes);
      stream_->synchronize();
      std::copy(pinned, pinned + bytes, to.begin());
    });
    return to;
  }

 private:
  template <class F>
  void with_pinned(size_t bytes, F&& f) {
    if (bytes == 0) return;
    void* pinned = device_.allocate_pinned(bytes);
    f(static_cast<std::byte*>(pinned));
    device_.release_pinned(pinned);
  }
  Device& device_;
  std::unique_ptr<DeviceStream> stream_;
};

void set_on_rank(Register& reg, Device& device, const PlanTensor& tensor, const Mesh& mesh, const HostArray& value) {
  Piece piece = part_in_whole(tensor, mesh, reg.rank);
  std::vector<std::byte> part(size_t(piece.numel() * bytes_of(tensor.type.dtype)));
  run_piece(turned(piece), tensor.type.dtype, value.data.data(), part.data());
  if (is_col(tensor)) part = transposed(part, piece.from_dims, bytes_of(tensor.type.dtype));
  Copier copier(device);
  for (int slot = 0; slot < reg.plan->slots; ++slot) copier.in(reg.slot(uint32_t(slot)) + tensor.offset, part);
}

void check_value(const std::string& name, const LogicalType& type, const HostArray& value) {
  auto sizes = sizes_of(type.shape);
  if (value.dtype != type.dtype)
    throw Error(Code::type,
                "variable '" + name + "' is " + text_of(type) + ", not " + std::string(name_of(value.dtype)));
  if (value.dims != sizes || int64_t(value.data.size()) != numel(type.shape) * bytes_of(type.dtype))
    throw Error(Code::value,
                "variable '" + name + "' is " + text_of(type) + ", not of shape " + text_of(fixed_shape(value.dims)));
}

}  // namespace

void scatter_variable(World& world, Lowered& lowered, const std::string& name, const HostArray& value) {
  bool found = false;
  for (auto& [key, reg] : lowered.registers) {
    if (reg->plan->variable != name) continue;
    auto& tensor = tensor_of(world.plan, *reg->plan);
    check_value(name, tensor.type, value);
    set_on_rank(*reg, *lowered.sites[size_t(reg->rank)]->device, tensor,
                world.plan.classes[size_t(reg->plan->cls)].mesh, value);
    found = true;
  }
  if (!found) no_such(name);
}

HostArray gather_variable(const World& world, const Lowered& lowered, const std::string& name) {
  HostArray value;
  const PlanRegister* plan = nullptr;
  for (auto& [key, reg] : lowered.registers) {
    if (reg->plan->variable != name || (plan && reg->plan != plan)) continue;
    plan = reg->plan;
    auto& tensor = tensor_of(world.plan, *plan);
    auto& mesh = world.plan.classes[size_t(plan->cls)].mesh;
    auto dims = sizes_of(tensor.type.shape);
    int64_t width = bytes_of(tensor.type.dtype);
    if (value.data.empty())
      value = {tensor.type.dtype, dims, std::vector<std::byte>(size_t(numel(tensor.type.shape) * width))};
    auto coords = mesh.coords(reg->rank);
    bool first = true;
    for (size_t a = 0; a < coords.size(); ++a) first = first && (tensor.sbp[a].is_split() || coords[a] == 0);
    if (!first) continue;
    Piece piece = part_in_whole(tensor, mesh, reg->rank);
    Copier copier(*lowered.sites[size_t(reg->rank)]->device);
    auto part = copier.out(reg->slot(reg->state.last()) + tensor.offset, size_t(piece.numel() * width));
    if (is_col(tensor)) {
      auto swapped = piece.from_dims;
      std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
      part = transposed(part, swapped, width);
    }
    run_piece(piece, tensor.type.dtype, part.data(), value.data.data());
  }
  if (!plan) no_such(name);
  return value;
}

}  // namespace sluice
