// SPDX-License-Identifier: Apache-2.0
#include "comm/shm/handshake.h"

#include <poll.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <list>

#include "base/error.h"
#include "base/hmac.h"
#include "comm/shm/ring.h"

namespace sluice::shm {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Hello {
  std::array<char, 8> version{'s', 'l', 'u', 'i', 'c', 'e', '-', '1'};
  uint64_t run = 0, page_bytes = sizeof(Page);
  uint32_t from = 0, to = 0;
  std::array<uint8_t, 32> random{};
};
struct Answer {
  std::array<uint8_t, 32> random{};
  Digest proof{};
};
struct Proof {
  Digest proof{};
};

struct Guest {
  enum class Stage { says_hello, answers, proves, welcomes };  // what we wait for; the second and fourth: we dialled
  Fd socket;
  Stage stage;
  Clock::time_point until;
  Hello hello;
  std::array<uint8_t, 32> random{};
};

constexpr size_t guests_max = 256;      // more are dropped, oldest first
constexpr milliseconds patience{2000};  // for who has connected and proves nothing
constexpr milliseconds pause_of_dials{5};

Digest proof_of(const ProcessGroup& group, const char* who, const Guest& guest) {
  std::vector<uint8_t> bytes(who, who + strlen(who));
  auto* hello = reinterpret_cast<const uint8_t*>(&guest.hello);
  bytes.insert(bytes.end(), hello, hello + sizeof guest.hello);
  bytes.insert(bytes.end(), guest.random.begin(), guest.random.end());
  return hmac_sha256(group.key, bytes);
}

template <class T>
Received receive(Guest& guest, T& message, Fd* passed = nullptr) {
  size_t size = 0;
  auto received = receive_message(guest.socket, std::as_writable_bytes(std::span(&message, 1)), size, passed);
  return received == Received::message && size != sizeof message ? Received::end : received;
}

class Meeting {
 public:
  Meeting(const ProcessGroup& group, Door door, const std::vector<std::string>& addresses,
          const std::function<int(int)>& page_for, milliseconds limit)
      : group_(group), door_(std::move(door)), addresses_(addresses), page_for_(page_for), limit_(limit) {
    for (int p = 0; p < group_.processes; ++p) {
      if (p == group_.process || addresses_[size_t(p)].empty()) continue;
      missing_.push_back(p);
      if (p > group_.process) to_dial_.push_back(p);
    }
  }

  std::vector<Met> run() {
    auto until = Clock::now() + limit_;
    while (!missing_.empty()) {
      auto now = Clock::now();
      if (now > until) throw Error(Code::failed, missing_text(), {}, next_);
      dial_all();
      guests_.remove_if([&](auto& guest) { return guest.until < now; });
      wait(std::min(until, now + (to_dial_.empty() ? milliseconds(100) : pause_of_dials)) - now);
      greet();
      guests_.remove_if([&](auto& guest) { return !step(guest); });
    }
    return std::move(met_);
  }

 private:
  void dial_all() {
    if (Clock::now() < next_dial_) return;
    next_dial_ = Clock::now() + pause_of_dials;
    std::vector<int> later;
    for (int process : to_dial_) {
      Guest guest{.stage = Guest::Stage::answers, .until = Clock::time_point::max()};
      switch (dial(addresses_[size_t(process)], guest.socket)) {
        case Dialled::busy: later.push_back(process); continue;
        case Dialled::nobody: throw Error(Code::failed, "process " + std::to_string(process) + " is gone", {}, next_);
        case Dialled::connected: break;
      }
      if (!is_same_user(guest.socket))
        throw Error(Code::failed, "process " + std::to_string(process) + " belongs to another user", {}, next_);
      guest.hello.run = group_.run;
      guest.hello.from = uint32_t(group_.process);
      guest.hello.to = uint32_t(process);
      random_bytes(guest.hello.random);
      if (send_message(guest.socket, bytes_of(guest.hello)))
        guests_.push_back(std::move(guest));
      else
        later.push_back(process);
    }
    to_dial_ = std::move(later);
  }

  void wait(Clock::duration time) {
    std::vector<pollfd> sockets{{door_.socket.get(), POLLIN, 0}};
    for (auto& guest : guests_) sockets.push_back({guest.socket.get(), POLLIN, 0});
    ::poll(sockets.data(), sockets.size(), int(std::chrono::ceil<milliseconds>(time).count()));
  }

  void greet() {
    while (Fd socket = accept_guest(door_.socket)) {
      if (!is_same_user(socket)) continue;
      Guest guest{.socket = std::move(socket), .stage = Guest::Stage::says_hello, .until = Clock::now() + patience};
      if (guests_.size() >= guests_max) {
        auto oldest =
            std::find_if(guests_.begin(), guests_.end(), [](auto& g) { return g.until != Clock::time_point::max(); });
        if (oldest != guests_.end()) guests_.erase(oldest);
      }
      guests_.push_back(std::move(guest));
    }
  }

  // False: done with this guest.
  bool step(Guest& guest) {
    switch (guest.stage) {
      case Guest::Stage::says_hello: return hear_hello(guest);
      case Guest::Stage::answers: return hear_answer(guest);
      case Guest::Stage::proves: return hear_proof(guest, "dials", int(guest.hello.from));
      case Guest::Stage::welcomes: return hear_proof(guest, "met", int(guest.hello.to));
    }
    return false;
  }

  bool hear_hello(Guest& guest) {
    auto received = receive(guest, guest.hello);
    if (received != Received::message) return received == Received::nothing;
    Hello expected;
    if (guest.hello.version != expected.version || guest.hello.page_bytes != expected.page_bytes ||
        guest.hello.run != group_.run || guest.hello.to != uint32_t(group_.process) ||
        guest.hello.from >= uint32_t(group_.process) || !is_missing(int(guest.hello.from)))
      return false;
    random_bytes(guest.random);
    guest.stage = Guest::Stage::proves;
    return send_message(guest.socket, bytes_of(Answer{guest.random, proof_of(group_, "listens", guest)}));
  }

  bool hear_answer(Guest& guest) {
    Answer answer;
    auto received = receive(guest, answer);
    if (received == Received::nothing) return true;
    int process = int(guest.hello.to);
    if (received == Received::end) return dial_again(process);
    guest.random = answer.random;
    if (!equal_in_constant_time(answer.proof, proof_of(group_, "listens", guest)))
      throw Error(Code::failed, "process " + std::to_string(process) + " has another key: it belongs to another run",
                  {}, next_);
    guest.stage = Guest::Stage::welcomes;
    return send_message(guest.socket, bytes_of(Proof{proof_of(group_, "dials", guest)}), page_for_(process)) ||
           dial_again(process);
  }

  bool hear_proof(Guest& guest, const char* who, int process) {
    Proof proof;
    Fd page;
    auto received = receive(guest, proof, &page);
    if (received == Received::nothing) return true;
    bool dialled = guest.stage == Guest::Stage::welcomes;
    if (received == Received::end) return dialled && dial_again(process);
    if (!equal_in_constant_time(proof.proof, proof_of(group_, who, guest))) {
      ++refused_;
      return dialled && dial_again(process);
    }
    if (!page || !is_missing(process)) return false;
    if (!dialled && !send_message(guest.socket, bytes_of(Proof{proof_of(group_, "met", guest)}), page_for_(process)))
      return false;
    missing_.erase(std::find(missing_.begin(), missing_.end(), process));
    met_.push_back({process, std::move(guest.socket), std::move(page)});
    return false;
  }

  // It has dropped us, among many others perhaps.
  bool dial_again(int process) {
    to_dial_.push_back(process);
    return false;
  }
  bool is_missing(int process) const { return std::find(missing_.begin(), missing_.end(), process) != missing_.end(); }
  std::string missing_text() const {
    std::string text = missing_.size() == 1 ? "process" : "processes";
    for (int process : missing_) text += (process == missing_.front() ? " " : ", ") + std::to_string(process);
    text += std::string(missing_.size() == 1 ? " has" : " have") + " not been met within " +
            std::to_string(limit_.count()) + " ms";
    if (refused_ > 0) text += "; " + std::to_string(refused_) + " had another key";
    return text;
  }

  const ProcessGroup& group_;
  Door door_;
  const std::vector<std::string>& addresses_;
  const std::function<int(int)>& page_for_;
  milliseconds limit_;
  std::vector<int> missing_, to_dial_;
  Clock::time_point next_dial_{};
  std::list<Guest> guests_;
  std::vector<Met> met_;
  int refused_ = 0;
  const char* next_ = "see that all processes of the run live, on one machine and in one network namespace";
};

}  // namespace

std::vector<Met> meet(const ProcessGroup& group, Door door, const std::vector<std::string>& addresses,
                      const std::function<int(int)>& page_for, milliseconds limit) {
  return Meeting(group, std::move(door), addresses, page_for, limit).run();
}

}  // namespace sluice::shm
