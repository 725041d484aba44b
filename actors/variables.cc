// SPDX-License-Identifier: Apache-2.0
#include "actors/variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

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

void check_array(const std::string& what, const LogicalType& type, const std::vector<int64_t>& dims, int64_t elements,
                 const HostArray& value) {
  if (value.dtype != type.dtype)
    throw Error(Code::type, what + " is " + text_of(type) + ", not " + std::string(name_of(value.dtype)));
  if (value.dims != dims || int64_t(value.data.size()) != elements * bytes_of(type.dtype))
    throw Error(Code::value, what + " is " + text_of(type) + ", not of shape " + text_of(fixed_shape(value.dims)));
}

// The register that holds a variable on a rank; -1: the rank has none.
int register_of(const Plan& plan, const std::string& name, int rank) {
  bool known = false;
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    auto& reg = plan.registers[r];
    if (reg.variable != name) continue;
    known = true;
    if (plan.classes[size_t(reg.cls)].mesh.holds(rank)) return int(r);
  }
  if (!known) no_such(name);
  return -1;
}

int register_here(const Plan& plan, const std::string& name, int rank) {
  int reg = register_of(plan, name, rank);
  if (reg < 0) throw Error(Code::value, fmt::format("rank {} holds nothing of variable '{}'", rank, name));
  return reg;
}

}  // namespace

std::optional<VariablePart> part_of(const Plan& plan, const std::string& name, int rank) {
  int reg = register_of(plan, name, rank);
  if (reg < 0) return std::nullopt;
  auto& tensor = tensor_of(plan, plan.registers[size_t(reg)]);
  auto& mesh = plan.classes[size_t(tensor.cls)].mesh;
  VariablePart part{part_in_whole(tensor, mesh, rank), true};
  auto coords = mesh.coords(rank);
  for (size_t a = 0; a < coords.size(); ++a) part.first = part.first && (tensor.sbp[a].is_split() || coords[a] == 0);
  return part;
}

void set_part(World& world, Lowered& lowered, const std::string& name, int rank, const HostArray& value) {
  Register& reg = *lowered.find(register_here(world.plan, name, rank), rank);
  auto& tensor = tensor_of(world.plan, *reg.plan);
  Piece piece = part_of(world.plan, name, rank)->piece;
  check_array(fmt::format("variable '{}' on rank {}", name, rank), tensor.type, piece.from_dims, piece.numel(), value);
  Copier copier(*lowered.sites[size_t(rank)]->device);
  std::vector<std::byte> turned;
  if (is_col(tensor)) turned = transposed(value.data, piece.from_dims, bytes_of(tensor.type.dtype));
  auto& data = is_col(tensor) ? turned : value.data;
  for (int slot = 0; slot < reg.plan->slots; ++slot) copier.in(reg.slot(uint32_t(slot)) + tensor.offset, data);
}

HostArray get_part(const World& world, const Lowered& lowered, const std::string& name, int rank) {
  Register& reg = *lowered.find(register_here(world.plan, name, rank), rank);
  auto& tensor = tensor_of(world.plan, *reg.plan);
  Piece piece = part_of(world.plan, name, rank)->piece;
  Copier copier(*lowered.sites[size_t(rank)]->device);
  HostArray part{tensor.type.dtype, piece.from_dims, {}};
  part.data = copier.out(reg.slot(reg.state.last()) + tensor.offset, size_t(piece.numel() * bytes_of(part.dtype)));
  if (is_col(tensor)) {
    auto swapped = piece.from_dims;
    std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
    part.data = transposed(part.data, swapped, bytes_of(part.dtype));
  }
  return part;
}

void scatter_variable(World& world, Lowered& lowered, const std::string& name, const HostArray& value) {
  for (int rank = 0; rank < world.plan.ranks(); ++rank) {
    auto part = part_of(world.plan, name, rank);
    if (!part) continue;
    auto& type = tensor_of(world.plan, world.plan.registers[size_t(register_of(world.plan, name, rank))]).type;
    check_array("variable '" + name + "'", type, sizes_of(type.shape), numel(type.shape), value);
    HostArray cut{type.dtype, part->piece.from_dims,
                  std::vector<std::byte>(size_t(part->piece.numel() * bytes_of(type.dtype)))};
    run_piece(turned(part->piece), type.dtype, value.data.data(), cut.data.data());
    set_part(world, lowered, name, rank, cut);
  }
}

HostArray gather_variable(const World& world, const Lowered& lowered, const std::string& name) {
  HostArray value;
  bool first = true;
  for (int rank = 0; rank < world.plan.ranks(); ++rank) {
    auto part = part_of(world.plan, name, rank);
    if (!part || !part->first) continue;
    HostArray mine = get_part(world, lowered, name, rank);
    if (std::exchange(first, false)) {
      int64_t elements = 1;
      for (int64_t dim : part->piece.to_dims) elements *= dim;
      value = {mine.dtype, part->piece.to_dims, std::vector<std::byte>(size_t(elements * bytes_of(mine.dtype)))};
    }
    run_piece(part->piece, mine.dtype, mine.data.data(), value.data.data());
  }
  return value;
}

}  // namespace sluice
