// SPDX-License-Identifier: Apache-2.0
// One UCX worker: active messages from and to end-points, without UCX's types.
// Invariants: a failed end-point is only reported; it is closed by close(), never inside a callback. What is sent and
// where it lands stays untouched until its own sent() or landed().
// Thread rule: one thread at a time; PortUser is called by progress(), send() and close() on that thread.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/ucx/library.h"

namespace sluice::ucx {

class Port;
// What the port's user keeps of a message on its way.
struct PortTicket {
  Port* port = nullptr;  // the port's own
};

class PortUser {
 public:
  virtual ~PortUser() = default;
  struct Place {
    void* to = nullptr;  // null: nowhere
    PortTicket* ticket = nullptr;
  };
  // A message. `data` null: its bytes wait at the sender, and go where the answer says; else they are here.
  virtual Place arrived(std::span<const std::byte> header, const std::byte* data, size_t bytes) = 0;
  virtual void landed(PortTicket& ticket, const char* error) = 0;  // error null: all bytes are there
  virtual void sent(PortTicket& ticket, const char* error) = 0;    // the memory that was sent from is free
  virtual void broken(int peer, const char* why) = 0;              // once a peer; nothing more arrives from it
};

class Port {
 public:
  Port(PortUser& user, const std::string& interface, int processes);
  ~Port();  // may still call user.sent() and user.landed()
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  std::string address() const;
  ucp_ep_h connect(const std::string& address, int peer);  // throws Error
  struct Message {
    std::span<const std::byte> header;
    std::span<const std::byte> data;
    bool rendezvous = false;  // the receiver says where it lands, else it is copied there
  };
  void send(ucp_ep_h to, const Message& message, PortTicket& ticket);
  unsigned progress() { return ucx_.worker_progress(worker_); }
  bool arm() { return ucx_.worker_arm(worker_) == UCS_OK; }  // false: there is work
  int descriptor() const { return descriptor_; }             // readable after arm(): there is work
  // Lets go of all that is under way; sent() and landed() report it.
  void close(ucp_ep_h endpoint);

 private:
  struct Peer {
    Port* port;
    int peer;
  };
  static ucs_status_t on_message(void* port, const void* header, size_t header_bytes, void* data, size_t bytes,
                                 const ucp_am_recv_param_t* param);
  static void on_landed(void* request, ucs_status_t status, size_t bytes, void* tag);
  static void on_sent(void* request, ucs_status_t status, void* tag);
  static void on_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  ucs_status_t land(void* descriptor, const PortUser::Place& place, size_t bytes);
  void make_worker();
  const char* error_of(ucs_status_t status) const { return status == UCS_OK ? nullptr : ucx_.status_string(status); }

  PortUser& user_;
  Library ucx_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<void*> closing_;
};

}  // namespace sluice::ucx
