// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/library.h"

#include <dlfcn.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace sluice::ucx {

namespace {

// What UCX's constructors read. They would take over SIGSEGV and SIGBUS, hook malloc, and write
// to standard output about peers that are gone.
constexpr std::array<std::pair<const char*, const char*>, 5> process_settings{{
    {"UCX_HANDLE_ERRORS", "none"},
    {"UCX_ERROR_SIGNALS", ""},
    {"UCX_MEM_EVENTS", "n"},
    {"UCX_LOG_LEVEL", "fatal"},
    {"UCX_WARN_UNUSED_ENV_VARS", "n"},
}};

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function)
    throw Error(Code::not_found, std::string("UCX has no function ") + name, {}, "install libucx0 1.13 or newer");
}

void check_version(void* library) {
  decltype(&ucp_get_version) get_version;
  find(library, "ucp_get_version", get_version);
  unsigned major = 0, minor = 0, patch = 0;
  get_version(&major, &minor, &patch);
  if (major != UCP_API_MAJOR || minor < UCP_API_MINOR)
    throw Error(Code::failed,
                "UCX " + std::to_string(major) + "." + std::to_string(minor) +
                    " is too old or too new for a build with " + std::to_string(UCP_API_MAJOR) + "." +
                    std::to_string(UCP_API_MINOR),
                {}, "install Debian's libucx0, or build Sluice with the headers of the UCX that is here");
}

bool has_infiniband() {
  std::error_code none;
  auto devices = std::filesystem::directory_iterator("/sys/class/infiniband", none);
  return !none && devices != std::filesystem::directory_iterator();
}

// UCX is content with no interface at all, and then reaches nobody. Names with a colon are InfiniBand's, UCX's own.
void check_interface(const std::string& list) {
  for (size_t begin = 0; begin < list.size();) {
    size_t end = std::min(list.find(',', begin), list.size());
    std::string name = list.substr(begin, end - begin);
    if (name.find(':') == std::string::npos && if_nametoindex(name.c_str()) == 0)
      throw Error(Code::value, "there is no network interface " + name, {}, "`ip link` lists those of this machine");
    begin = end + 1;
  }
}

}  // namespace

Library load_library(const char* file) {
  if (void* loaded = dlopen(file, RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL))
    dlclose(loaded);
  else
    for (auto [name, value] : process_settings) setenv(name, value, 0);
  // It has threads and handlers of its own: once loaded it stays.
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library)
    throw Error(Code::not_found, std::string("UCX, which carries data between hosts, cannot be loaded: ") + dlerror(),
                {}, "install the package libucx0, or run all workers on one host");
  check_version(library);
  Library ucx{};
  find(library, "ucp_config_read", ucx.config_read);
  find(library, "ucp_config_modify", ucx.config_modify);
  find(library, "ucp_config_release", ucx.config_release);
  find(library, "ucp_init_version", ucx.init_version);
  find(library, "ucp_cleanup", ucx.cleanup);
  find(library, "ucp_worker_create", ucx.worker_create);
  find(library, "ucp_worker_destroy", ucx.worker_destroy);
  find(library, "ucp_worker_get_address", ucx.worker_get_address);
  find(library, "ucp_worker_release_address", ucx.worker_release_address);
  find(library, "ucp_worker_get_efd", ucx.worker_get_efd);
  find(library, "ucp_worker_arm", ucx.worker_arm);
  find(library, "ucp_worker_progress", ucx.worker_progress);
  find(library, "ucp_worker_set_am_recv_handler", ucx.worker_set_am_recv_handler);
  find(library, "ucp_ep_create", ucx.ep_create);
  find(library, "ucp_ep_close_nbx", ucx.ep_close_nbx);
  find(library, "ucp_am_send_nbx", ucx.am_send_nbx);
  find(library, "ucp_am_recv_data_nbx", ucx.am_recv_data_nbx);
  find(library, "ucp_request_check_status", ucx.request_check_status);
  find(library, "ucp_request_free", ucx.request_free);
  find(library, "ucs_status_string", ucx.status_string);
  return ucx;
}

ucp_context_h make_context(const Library& ucx, const std::string& interface, int processes) {
  check_interface(interface);
  ucp_config_t* config = nullptr;
  if (ucx.config_read(nullptr, nullptr, &config) != UCS_OK)
    throw Error(Code::usage, "UCX cannot read its settings", {}, "look at the variables UCX_* of the environment");
  auto set = [&](const char* name, const std::string& value) {
    std::string variable = std::string("UCX_") + name;
    if (!getenv(variable.c_str())) ucx.config_modify(config, name, value.c_str());
  };
  set("TLS", has_infiniband() ? "tcp,self,ib" : "tcp,self");
  set("NET_DEVICES", interface.empty() ? "lo" : interface);
  set("KEEPALIVE_INTERVAL", "1s");
  set("TCP_CONN_NB", "y");  // the progress thread must not wait for a host that does not answer
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                      UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 0;
  params.estimated_num_eps = size_t(processes);
  params.name = "sluice";
  ucp_context_h context = nullptr;
  ucs_status_t status = ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
  ucx.config_release(config);
  if (status != UCS_OK)
    throw Error(Code::failed,
                "UCX finds no network on interface " + (interface.empty() ? std::string("lo") : interface) + ": " +
                    ucx.status_string(status),
                {}, "name an interface that is up and has an address: `ip address` lists them");
  return context;
}

}  // namespace sluice::ucx
