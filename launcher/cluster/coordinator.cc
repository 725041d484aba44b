// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "launcher/cluster/door.h"
#include "launcher/cluster/hall.h"

namespace sluice {

struct Coordinator::Impl {
  std::shared_ptr<Roll> roll = std::make_shared<Roll>();
  Hall* hall = nullptr;  // lives and dies with the loop's thread
  std::unique_ptr<Loop> loop;
  std::unique_ptr<Door> door;

  explicit Impl(const CoordinatorOptions& options) {
    loop = std::make_unique<Loop>([&](kj::AsyncIoContext& io) {
      auto made = std::make_shared<Hall>(io, options, roll);
      hall = made.get();
      return made;
    });
    door = std::make_unique<Door>(options.listen, options.port, options.secret, [this](int fd, Role role) {
      auto handle = std::make_shared<Handle>(fd);  // closed where the loop has ended
      loop->post([this, handle, role] { hall->admit(handle->release(), role); });
    });
  }
  ~Impl() {
    door.reset();
    loop->stop([this] { return hall->close(); });
  }
};

Coordinator::Coordinator(const CoordinatorOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Coordinator::~Coordinator() = default;

int Coordinator::port() const { return impl_->door->port(); }

bool Coordinator::wait_for_workers(int workers, std::chrono::milliseconds timeout) {
  return impl_->roll->wait_for(workers, timeout);
}

std::vector<WorkerInfo> Coordinator::workers() const { return impl_->roll->get(); }

void Coordinator::cancel_runs(const Error& error) {
  impl_->loop->post([hall = impl_->hall, error] { hall->cancel_runs(error); });
}

void Coordinator::worker_ended(const std::string& host, int64_t pid, const std::string& how) {
  impl_->loop->post([hall = impl_->hall, host, pid, how] { hall->worker_ended(host, pid, how); });
}

}  // namespace sluice
