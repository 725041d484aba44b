// SPDX-License-Identifier: Apache-2.0
// UCX's functions. The library is loaded when the first transport is made: nothing links it, so that a machine without
// it runs all that needs no network, and its environment is set before its constructors read it.
// Invariant: a variable UCX_* of the user's own wins over ours.
// Thread rule: load_library() from any thread, best before others read the environment; the table is a value.
#pragma once
#include <ucp/api/ucp.h>

#include <string>

namespace sluice::ucx {

struct Library {
  decltype(&ucp_config_read) config_read;
  decltype(&ucp_config_modify) config_modify;
  decltype(&ucp_config_release) config_release;
  decltype(&ucp_init_version) init_version;
  decltype(&ucp_cleanup) cleanup;
  decltype(&ucp_worker_create) worker_create;
  decltype(&ucp_worker_destroy) worker_destroy;
  decltype(&ucp_worker_get_address) worker_get_address;
  decltype(&ucp_worker_release_address) worker_release_address;
  decltype(&ucp_worker_get_efd) worker_get_efd;
  decltype(&ucp_worker_arm) worker_arm;
  decltype(&ucp_worker_progress) worker_progress;
  decltype(&ucp_worker_set_am_recv_handler) worker_set_am_recv_handler;
  decltype(&ucp_ep_create) ep_create;
  decltype(&ucp_ep_close_nbx) ep_close_nbx;
  decltype(&ucp_am_send_nbx) am_send_nbx;
  decltype(&ucp_am_recv_data_nbx) am_recv_data_nbx;
  decltype(&ucp_request_check_status) request_check_status;
  decltype(&ucp_request_free) request_free;
  decltype(&ucs_status_string) status_string;
};

// Throws Error that names the package when the library is missing or is not the one that the headers are of.
Library load_library(const char* file = "libucp.so.0");

// A context over network transports only, bound to `interface` ("": loopback): processes of one host have `shm`.
ucp_context_h make_context(const Library& ucx, const std::string& interface, int processes);

}  // namespace sluice::ucx
