// SPDX-License-Identifier: Apache-2.0
// How a register's slots leave the process where the receiver does not see this rank's memory: the pieces that the
// receiver wants are packed into host memory (through the device, where that has memory of its own) and sent.
//
//   cpu:   slot --pack--> staging --send-->        a single piece without gaps is sent from the slot itself
//   async: slot --pack--> device staging --copy_out--> pinned staging --event, poller--> send
//
// Invariants: there is a staging slot for each slot of the register, so a credit of the wire frees both.
// Thread rule: the stream of the register's producer; refresh() by the client's thread while drained.
#pragma once
#include <map>

#include "actors/windows.h"
#include "comm/packing.h"

namespace sluice {

class Poller;

class Outlet {
 public:
  Outlet(Packing packing, Transport& transport, uint32_t wire, uint32_t slots, uint32_t micros, Device& device);
  ~Outlet();
  Outlet(const Outlet&) = delete;

  void send(DeviceStream& stream, const Register& reg, uint32_t slot, Poller* poller);
  void refresh(DeviceStream& stream, const Register& reg, uint32_t slot);

 private:
  struct Program {
    std::vector<PackedPiece> pieces;
    size_t bytes = 0;
    bool dense = false;  // one piece without gaps
  };
  const Program& program_for(const SlotHeader& header);
  void make_staging();
  // Enqueues the packing; where the message will lie.
  const std::byte* pack(DeviceStream& stream, const Program& program, const Register& reg, uint32_t slot);

  const Packing packing_;
  Transport& transport_;
  const uint32_t wire_, slots_;
  Device& device_;
  Windows<Program> windows_;
  std::byte* host_ = nullptr;    // staging, made when it is first needed
  std::byte* packed_ = nullptr;  // on an asynchronous device
};

}  // namespace sluice
