// SPDX-License-Identifier: Apache-2.0
#include "actors/outlet.h"

#include <algorithm>

#include "actors/poller.h"

namespace sluice {

Outlet::Outlet(Packing packing, Transport& transport, uint32_t wire, uint32_t slots, uint32_t micros, Device& device)
    : packing_(std::move(packing)),
      transport_(transport),
      wire_(wire),
      slots_(slots),
      device_(device),
      windows_(std::max(1u, micros)) {}

Outlet::~Outlet() {
  if (host_) device_.release_pinned(host_);
  if (packed_) device_.release(packed_);
}

const Outlet::Program& Outlet::program_for(const SlotHeader& header) {
  Firing at;
  at.micro = uint32_t(header.micro_batch);
  at.extent = header.extent;
  return windows_.get(at, [&](Program& fresh) {
    fresh.pieces = packing_.pieces(window_of(header));
    fresh.bytes = Packing::bytes_of(fresh.pieces);
    fresh.dense = fresh.pieces.size() == 1 && fresh.pieces[0].dense_at >= 0 && fresh.pieces[0].offset == 0;
  });
}

void Outlet::make_staging() {
  if (host_) return;
  size_t bytes = std::max<size_t>(64, packing_.bytes_max() * slots_);
  host_ = static_cast<std::byte*>(device_.allocate_pinned(bytes));
  if (device_.async()) packed_ = static_cast<std::byte*>(device_.allocate(bytes));
}

const std::byte* Outlet::pack(DeviceStream& stream, const Program& program, const Register& reg, uint32_t slot) {
  const std::byte* from = reg.slot(slot);
  if (!device_.async() && program.dense)
    return from + packing_.hops()[program.pieces[0].hop].from_offset + program.pieces[0].dense_at;
  make_staging();
  std::byte* host = host_ + slot * packing_.bytes_max();
  if (!device_.computes()) return host;
  std::byte* to = device_.async() ? packed_ + slot * packing_.bytes_max() : host;
  for (auto& piece : program.pieces) {
    auto& hop = packing_.hops()[piece.hop];
    const std::byte* source = from + hop.from_offset;
    std::byte* target = to + piece.offset;
    if (!device_.async()) {
      run_piece(piece.pack, hop.to.type.dtype, source, target);
      continue;
    }
    stream.launch([pack = piece.pack, dtype = hop.to.type.dtype, source, target, queue = stream.queue()](
                      std::ptrdiff_t base) { run_piece(pack, dtype, source + base, target + base, queue); });
  }
  if (device_.async()) device_.copy_out(stream, host, to, program.bytes);
  return host;
}

void Outlet::send(DeviceStream& stream, const Register& reg, uint32_t slot, Poller* poller) {
  const Program& program = program_for(reg.headers[slot]);
  SlotHeader header = reg.headers[slot];
  header.bytes_valid = int64_t(program.bytes);
  const std::byte* data = pack(stream, program, reg, slot);
  if (!device_.async()) return transport_.send(wire_, slot, header, data, program.bytes, nullptr);
  poller->watch(stream.record(), [this, slot, header, data, bytes = program.bytes] {
    transport_.send(wire_, slot, header, data, bytes, nullptr);
  });
}

void Outlet::refresh(DeviceStream& stream, const Register& reg, uint32_t slot) {
  const Program& program = program_for(reg.headers[slot]);
  SlotHeader header = reg.headers[slot];
  header.bytes_valid = int64_t(program.bytes);
  const std::byte* data = pack(stream, program, reg, slot);
  stream.synchronize();
  transport_.refresh(wire_, slot, header, data, program.bytes);
}

}  // namespace sluice
