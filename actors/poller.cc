// SPDX-License-Identifier: Apache-2.0
#include "actors/poller.h"

#include <chrono>
#include <future>

namespace sluice {

Poller::Poller() : thread_([this] { work(); }) {}

Poller::~Poller() { stop(); }

void Poller::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Poller::watch(EventPtr event, std::function<void()> action) {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  fresh_.push_back({std::move(event), std::move(action)});
  changed_.notify_all();
}

void Poller::settle() {
  std::promise<void> reached;
  watch(nullptr, [&] { reached.set_value(); });
  reached.get_future().wait();
}

// Events are asked every few microseconds while some are watched: devices have no common way to be told.
void Poller::work() {
  std::vector<Item> watched;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (watched.empty()) changed_.wait(lock, [&] { return stopping_ || !fresh_.empty(); });
      if (stopping_) return;
      for (auto& item : fresh_) watched.push_back(std::move(item));
      fresh_.clear();
    }
    // Asked from the youngest to the oldest, so that of one stream's events an older one is never seen pending beside
    // a younger done one; acted upon in the order of arrival.
    std::vector<char> done(watched.size());
    for (size_t i = watched.size(); i-- > 0;) done[i] = !watched[i].event || watched[i].event->done();
    std::vector<Item> rest;
    for (size_t i = 0; i < watched.size(); ++i) {
      if (done[i])
        watched[i].action();
      else
        rest.push_back(std::move(watched[i]));
    }
    watched = std::move(rest);
    if (!watched.empty()) std::this_thread::sleep_for(std::chrono::microseconds(5));
  }
}

}  // namespace sluice
