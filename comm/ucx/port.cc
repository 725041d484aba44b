// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/port.h"

#include "base/error.h"

namespace sluice::ucx {

namespace {

constexpr unsigned message_id = 1;

}  // namespace

Port::Port(PortUser& user, const std::string& interface, int processes)
    : user_(user), ucx_(load_library()), context_(make_context(ucx_, interface, processes)) {
  try {
    make_worker();
  } catch (...) {
    if (worker_) ucx_.worker_destroy(worker_);
    ucx_.cleanup(context_);
    throw;
  }
}

void Port::make_worker() {
  auto must = [&](ucs_status_t status, const char* what) {
    if (status != UCS_OK) throw Error(Code::failed, std::string("UCX ") + what + ": " + ucx_.status_string(status));
  };
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  must(ucx_.worker_create(context_, &params, &worker_), "cannot make a worker");
  must(ucx_.worker_get_efd(worker_, &descriptor_), "has no descriptor to wait on");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = message_id;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &Port::on_message;
  handler.arg = this;
  must(ucx_.worker_set_am_recv_handler(worker_, &handler), "cannot take messages");
}

Port::~Port() {
  // A forced close ends by itself; the bound is for a library that does not.
  for (int i = 0; i < 10000 && !closing_.empty(); ++i) {
    ucx_.worker_progress(worker_);
    std::erase_if(closing_, [&](void* request) {
      if (ucx_.request_check_status(request) == UCS_INPROGRESS) return false;
      ucx_.request_free(request);
      return true;
    });
  }
  ucx_.worker_destroy(worker_);
  ucx_.cleanup(context_);
}

std::string Port::address() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  if (ucx_.worker_get_address(worker_, &address, &bytes) != UCS_OK) throw Error(Code::failed, "UCX has no address");
  std::string text(reinterpret_cast<const char*>(address), bytes);
  ucx_.worker_release_address(worker_, address);
  return text;
}

ucp_ep_h Port::connect(const std::string& address, int peer) {
  peers_.push_back(std::make_unique<Peer>(Peer{this, peer}));
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = &Port::on_error, .arg = peers_.back().get()};
  ucp_ep_h endpoint = nullptr;
  ucs_status_t status = ucx_.ep_create(worker_, &params, &endpoint);
  if (status != UCS_OK)
    throw Error(Code::failed,
                "process " + std::to_string(peer) + " cannot be reached over UCX: " + ucx_.status_string(status), {},
                "look whether both hosts use interfaces of one network");
  return endpoint;
}

void Port::send(ucp_ep_h to, const Message& message, PortTicket& ticket) {
  ticket.port = this;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = message.rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = &Port::on_sent;
  param.user_data = &ticket;
  ucs_status_ptr_t request = ucx_.am_send_nbx(to, message_id, message.header.data(), message.header.size(),
                                              message.data.data(), message.data.size(), &param);
  if (!UCS_PTR_IS_PTR(request)) user_.sent(ticket, error_of(UCS_PTR_STATUS(request)));
}

void Port::close(ucp_ep_h endpoint) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucs_status_ptr_t request = ucx_.ep_close_nbx(endpoint, &param);
  if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
}

ucs_status_t Port::on_message(void* arg, const void* header, size_t header_bytes, void* data, size_t bytes,
                              const ucp_am_recv_param_t* param) {
  Port& port = *static_cast<Port*>(arg);
  bool rendezvous = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
  static constexpr std::byte nothing{};
  auto* here = bytes == 0 ? &nothing : static_cast<const std::byte*>(data);
  auto place =
      port.user_.arrived({static_cast<const std::byte*>(header), header_bytes}, rendezvous ? nullptr : here, bytes);
  return rendezvous && place.to ? port.land(data, place, bytes) : UCS_OK;
}

// Inside the message's callback: UCX 1.13 leaks what is taken later.
ucs_status_t Port::land(void* descriptor, const PortUser::Place& place, size_t bytes) {
  place.ticket->port = this;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = &Port::on_landed;
  param.user_data = place.ticket;
  ucs_status_ptr_t request = ucx_.am_recv_data_nbx(worker_, descriptor, place.to, bytes, &param);
  if (UCS_PTR_IS_PTR(request)) return UCS_INPROGRESS;
  user_.landed(*place.ticket, error_of(UCS_PTR_STATUS(request)));
  return UCS_OK;
}

void Port::on_landed(void* request, ucs_status_t status, size_t, void* ticket) {
  Port& port = *static_cast<PortTicket*>(ticket)->port;
  port.user_.landed(*static_cast<PortTicket*>(ticket), port.error_of(status));
  port.ucx_.request_free(request);
}

void Port::on_sent(void* request, ucs_status_t status, void* ticket) {
  Port& port = *static_cast<PortTicket*>(ticket)->port;
  port.user_.sent(*static_cast<PortTicket*>(ticket), port.error_of(status));
  port.ucx_.request_free(request);
}

void Port::on_error(void* peer, ucp_ep_h, ucs_status_t status) {
  auto& it = *static_cast<Peer*>(peer);
  it.port->user_.broken(it.peer, it.port->ucx_.status_string(status));
}

}  // namespace sluice::ucx
