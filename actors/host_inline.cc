// SPDX-License-Identifier: Apache-2.0
// The client's thread as the host: no other thread and no CAF. A plan for one local device is driven without hand-offs.
#include <deque>

#include "actors/stream.h"

namespace sluice {
namespace {

class InlineHost final : public Host {
 public:
  explicit InlineHost(World& world) : world_(world) {}

  void start(std::vector<Stream*>) override {}
  void stop() override { queue_.clear(); }
  bool drives() const override { return true; }
  void wake(Stream& stream) override { queue_.push_back(&stream); }
  void report_failure() override { world_.decide_failure(); }

  bool drive_one() override {
    if (queue_.empty()) return false;
    Stream* stream = queue_.front();
    queue_.pop_front();
    if (stream->turn(firings_a_turn) || stream->rest()) queue_.push_back(stream);
    return true;
  }

 private:
  static constexpr int firings_a_turn = 16;
  World& world_;
  std::deque<Stream*> queue_;
};

}  // namespace

std::unique_ptr<Host> make_inline_host(World& world) { return std::make_unique<InlineHost>(world); }

}  // namespace sluice
