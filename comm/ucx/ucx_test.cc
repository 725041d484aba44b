// SPDX-License-Identifier: Apache-2.0
// What UCX's transport promises beyond the suites of all transports: whatever comes over the network, this process
// lives, and control is not held up by data.
#include "comm/ucx/ucx.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <sstream>

#include "base/error.h"
#include "comm/testing.h"
#include "comm/ucx/handshake.h"
#include "comm/ucx/library.h"
#include "comm/ucx/message.h"
#include "comm/ucx/port.h"

namespace sluice::ucx {
namespace {

using testing::group_of;
using testing::Losses;
using testing::Queue;

constexpr Wire there{.id = 1, .from_rank = 0, .to_rank = 1, .slots = 2, .bytes_max = size_t(64) << 20};
constexpr Wire back{.id = 2, .from_rank = 1, .to_rank = 0, .slots = 2, .bytes_max = 1000};
constexpr Wire third{.id = 3, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = 8};

// Process 1 of two, which says whatever a test wants. Used by one thread.
class Liar final : public PortUser {
 public:
  explicit Liar(const ProcessGroup& group) : group_(group), shake_(group, 0) {}
  std::string address() const { return wrap_address(1, port_.address()); }
  // Until `other` takes this for process 1; or it does not: what its connect() throws.
  std::string meet(UcxTransport& other, bool proves = true) {
    proves_ = proves;
    to_ = port_.connect(unwrap_address(0, other.address()), 0);
    auto met = std::async(std::launch::async, [&]() -> std::string {
      try {
        other.connect({"", address()});
        return "";
      } catch (const Error& error) {
        return error.what();
      }
    });
    say(Kind::hello, {}, bytes_of(shake_.nonce()));
    while (met.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) port_.progress();
    if (proves) until([&] { return shake_.session() != 0; });
    return met.get();
  }
  // As an honest peer would seal it; `spoil` may then change a word of it.
  void say(Kind kind, MessageHeader header, std::vector<std::byte> payload, const SlotWords* words = nullptr,
           const std::function<void(MessageHeader&)>& spoil = {}) {
    Said& said = *said_.emplace_back(std::make_unique<Said>());
    said.payload = std::move(payload);
    header.run = group_.run;
    header.from = 1;
    header.session = shake_.session();
    header.kind = kind;
    header.bytes = uint32_t(said.payload.size());
    header.flags |= flag_payload_sum;
    header.payload_sum = sum_of(said.payload.data(), said.payload.size());
    header.header_sum = header_sum_of(header, words);
    if (spoil) spoil(header);
    said.header = {header, words ? *words : SlotWords{}};
    auto* begin = reinterpret_cast<const std::byte*>(&said.header);
    port_.send(to_, {{begin, words ? sizeof(FirstHeader) : sizeof(MessageHeader)}, said.payload}, said);
  }
  void data(uint32_t slot, uint64_t sequence, size_t bytes, const std::function<void(MessageHeader&)>& spoil = {}) {
    SlotWords words;
    say(Kind::data, {.sequence = sequence, .total = bytes, .wire = back.id, .slot = slot},
        std::vector<std::byte>(bytes), &words, spoil);
  }
  void credit(CreditWords words) { say(Kind::credits, {}, bytes_of(words)); }
  void progress() { port_.progress(); }
  template <class Done>
  void until(const Done& done) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!done() && std::chrono::steady_clock::now() < deadline) port_.progress();
    EXPECT_TRUE(done());
  }
  template <class T>
  static std::vector<std::byte> bytes_of(const T& words) {
    auto* begin = reinterpret_cast<const std::byte*>(&words);
    return {begin, begin + sizeof words};
  }

 private:
  struct Said : PortTicket {
    FirstHeader header;
    std::vector<std::byte> payload;
  };
  Place arrived(std::span<const std::byte> head, const std::byte* data, size_t bytes) override {
    FirstHeader header;
    std::memcpy(&header, head.data(), head.size());
    if (header.message.kind == Kind::hello && bytes == sizeof(Nonce) && proves_) {
      Nonce nonce;
      std::memcpy(nonce.data(), data, sizeof nonce);
      say(Kind::proof, {}, bytes_of(shake_.answer(nonce)));
    }
    Proof proof;
    if (header.message.kind == Kind::proof && bytes == sizeof proof) {
      std::memcpy(&proof, data, sizeof proof);
      shake_.accept(proof);
    }
    return {};
  }
  void landed(PortTicket&, const char*) override {}
  void sent(PortTicket&, const char*) override {}
  void broken(int, const char*) override {}

  ProcessGroup group_;
  Handshake shake_;
  bool proves_ = true;
  std::vector<std::unique_ptr<Said>> said_;
  Port port_{*this, "", 2};
  ucp_ep_h to_ = nullptr;
};

// A transport with its wires, and a liar at their other ends.
struct Meeting {
  Losses losses;
  Queue<Arrival> arrivals;
  Queue<uint32_t> credits;
  std::unique_ptr<UcxTransport> transport;
  Liar liar;

  Meeting() : transport(make_ucx(group_of(0, &losses), "", {})), liar(group_of(1, nullptr)) {
    EXPECT_EQ(liar.meet(*transport), "");
    transport->open_sender(there, [this](uint32_t slot) { credits.post(slot); });
    transport->open_receiver(back, [this](const Arrival& arrival) { arrivals.post(arrival); });
  }
  ~Meeting() {
    liar.say(Kind::bye, {}, {});
    auto closed = std::async(std::launch::async, [&] { transport->close(); });
    liar.until([&] { return closed.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready; });
  }
  std::string loss() {
    liar.until([&] { return losses.size() > 0; });
    return losses.take().second;
  }
};

TEST(Ucx, NothingCountsBeforeTheProof) {
  Losses losses;
  auto transport = make_ucx(group_of(0, &losses, 100), "", {});
  Liar liar(group_of(1, nullptr));
  EXPECT_NE(liar.meet(*transport, false).find("process 1"), std::string::npos);
  int64_t before = transport->dropped();
  liar.data(0, 0, 10);
  liar.credit({});
  liar.say(Kind::ping, {.sequence = 1}, {});
  liar.say(Kind::bye, {}, {});
  liar.until([&] { return transport->dropped() == before + 4; });
  transport->close();
  EXPECT_EQ(losses.size(), 0u);
}

TEST(Ucx, WhatIsNotOfTheSessionIsDroppedAndTheRestFlows) {
  Meeting it;
  int64_t before = it.transport->dropped();
  it.liar.data(0, 0, 10, [](MessageHeader& header) { header.slot = 1; });  // its sum no longer fits
  auto sealed_again = [](MessageHeader& header) {
    SlotWords words;
    header.header_sum = header_sum_of(header, &words);
  };
  it.liar.data(0, 0, 10, [&](MessageHeader& header) { ++header.session, sealed_again(header); });
  it.liar.data(0, 0, 10, [&](MessageHeader& header) { ++header.run, sealed_again(header); });
  it.liar.data(0, 0, 10, [&](MessageHeader& header) { header.from = 7, sealed_again(header); });
  it.liar.data(0, 0, 10, [&](MessageHeader& header) { header.from = 0, sealed_again(header); });
  it.liar.data(1, 0, 10);
  it.liar.until([&] { return it.arrivals.size() == 1 && it.transport->dropped() == before + 5; });
  EXPECT_EQ(it.arrivals.take().slot, 1u);
  EXPECT_EQ(it.losses.size(), 0u);
}

TEST(Ucx, APeerThatBreaksTheProtocolIsLost) {
  const std::pair<const char*, std::function<void(Meeting&)>> lies[] = {
      {"which does not come from it",
       [](Meeting& it) {
         it.liar.data(0, 0, 1, [](MessageHeader& header) {
           header.wire = 99;
           SlotWords words;
           header.header_sum = header_sum_of(header, &words);
         });
       }},
      {"without a credit", [](Meeting& it) { it.liar.data(0, 0, 1), it.liar.data(0, 1, 1); }},
      {"without a credit", [](Meeting& it) { it.liar.data(0, 5, 1); }},
      {"more bytes than a slot holds", [](Meeting& it) { it.liar.data(0, 0, 1001); }},
      {"a slot that the wire does not have", [](Meeting& it) { it.liar.data(2, 0, 1); }},
      {"damaged",
       [](Meeting& it) {
         it.liar.data(0, 0, 9, [](MessageHeader& header) {
           ++header.payload_sum;
           SlotWords words;
           header.header_sum = header_sum_of(header, &words);
         });
       }},
      {"which does not lead to it", [](Meeting& it) { it.liar.credit({.wire = back.id}); }},
      {"was not sent", [](Meeting& it) { it.liar.credit({.wire = there.id, .slot = 1}); }},
      {"does not have", [](Meeting& it) { it.liar.credit({.wire = there.id, .slot = 2}); }},
      {"credits of a wrong size", [](Meeting& it) { it.liar.say(Kind::credits, {}, std::vector<std::byte>(17)); }},
      {"was not refreshed with", [](Meeting& it) { it.liar.say(Kind::refreshed, {.wire = there.id}, {}); }},
      {"nobody said bye", [](Meeting& it) { it.liar.say(Kind::bye_heard, {}, {}); }},
      {"a ping came twice", [](Meeting& it) { it.liar.say(Kind::ping, {.sequence = 0}, {}); }},
      {"unknown kind", [](Meeting& it) { it.liar.say(Kind(77), {}, {}); }},
  };
  for (auto& [reason, lie] : lies) {
    Meeting it;
    lie(it);
    std::string why = it.loss();
    EXPECT_NE(why.find("process 1 is lost"), std::string::npos) << why;
    EXPECT_NE(why.find(reason), std::string::npos) << reason << ": " << why;
    it.transport->send(there.id, 0, {}, nullptr, 0, nullptr);  // goes nowhere
    EXPECT_THROW(it.transport->refresh(there.id, 0, {}, nullptr, 0), Error);
    EXPECT_EQ(it.losses.size(), 0u) << "lost once";
  }
}

// A peer that holds the key and says random things: the end is its loss, whatever it said.
TEST(Ucx, RandomMessagesDoNoHarm) {
  std::mt19937_64 random(4711);
  for (int round = 0; round < 12; ++round) {
    Meeting it;
    for (int i = 0; i < 200 && it.losses.size() == 0; ++i) {
      MessageHeader header{.sequence = random() % 4,
                           .total = random() % 1100,
                           .wire = uint32_t(random() % 4),
                           .slot = uint32_t(random() % 3),
                           .chunk = uint32_t(random() % 2)};
      header.flags = uint16_t(random() % 4);
      std::vector<std::byte> payload(random() % 2 ? size_t(header.total) : size_t(random() % 100));
      SlotWords words{.step = int64_t(random())};
      Kind kind = Kind(random() % 10);
      if (kind == Kind::bye) continue;  // after it there is no loss
      it.liar.say(kind, header, payload, random() % 2 ? &words : nullptr);
      it.liar.progress();
    }
    it.liar.say(Kind(77), {}, {});
    EXPECT_NE(it.loss().find("process 1 is lost"), std::string::npos);
  }
}

// Two transports of this process.
struct Pair {
  Losses losses;
  std::unique_ptr<UcxTransport> a = make_ucx(group_of(0, &losses), "", {}), b = make_ucx(group_of(1, &losses), "", {});
  Pair() { testing::connect(*a, *b); }
  void close() {
    a->close();
    b->close();
  }
};

// 64 MiB wait to be sent; what is sent behind them on another wire comes first.
TEST(Ucx, SmallThingsOvertake64MiB) {
  Pair pair;
  Queue<uint32_t> order;
  std::promise<void> held, go;
  auto wait_for_go = go.get_future().share();
  pair.a->open_sender(third, [&](uint32_t) {
    held.set_value();
    wait_for_go.wait();  // the progress thread stands still while the two are queued
  });
  pair.a->open_sender(there, [](uint32_t) {});
  Wire small{.id = 4, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = 8};
  pair.a->open_sender(small, [](uint32_t) {});
  pair.b->open_receiver(third, [&](const Arrival& arrival) { pair.b->release(third.id, arrival.slot); });
  pair.b->open_receiver(there, [&](const Arrival&) { order.post(there.id); });
  pair.b->open_receiver(small, [&](const Arrival&) { order.post(small.id); });
  pair.a->send(third.id, 0, {}, nullptr, 0, nullptr);
  held.get_future().wait();
  std::vector<std::byte> data(there.bytes_max);
  pair.a->send(there.id, 0, {}, data.data(), data.size(), nullptr);
  pair.a->send(small.id, 0, {}, data.data(), 8, nullptr);
  go.set_value();
  EXPECT_EQ(order.take(), small.id);
  EXPECT_EQ(order.take(), there.id);
  pair.close();
}

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * size_t(sysconf(_SC_PAGESIZE));
}

// What is sent without end to one who takes one at a time needs no more memory than its slots.
TEST(Ucx, ASlowReceiverCostsNoMemory) {
  Pair pair;
  constexpr size_t bytes = size_t(256) << 10;
  Wire wire{.id = 5, .from_rank = 0, .to_rank = 1, .slots = 4, .bytes_max = bytes};
  std::vector<std::byte> data(bytes);
  std::atomic<int> left{400};
  Queue<Arrival> arrivals;
  auto send = [&](uint32_t slot) {
    if (left-- > 0) pair.a->send(wire.id, slot, {}, data.data(), bytes, nullptr);
  };
  pair.b->open_receiver(wire, [&](const Arrival& arrival) { arrivals.post(arrival); });
  pair.a->open_sender(wire, send);
  for (uint32_t slot = 0; slot < wire.slots; ++slot) send(slot);
  size_t before = 0;
  for (int i = 0; i < 400; ++i) {
    if (i == 40) before = resident_bytes();
    ASSERT_LE(arrivals.size(), wire.slots);
    pair.b->release(wire.id, arrivals.take().slot);
  }
  EXPECT_LT(resident_bytes(), before + (size_t(24) << 20)) << "90 MiB have passed";
  pair.close();
}

TEST(Ucx, FiftyCyclesKeepMemoryFlat) {
  size_t before = 0;
  for (int cycle = 0; cycle < 50; ++cycle) {
    Pair pair;
    Queue<Arrival> arrivals;
    pair.b->open_receiver(there, [&](const Arrival& arrival) { arrivals.post(arrival); });
    pair.a->open_sender(there, [](uint32_t) {});
    std::vector<std::byte> data(100'000);
    pair.a->send(there.id, 0, {}, data.data(), data.size(), nullptr);
    arrivals.take();
    pair.close();
    if (cycle == 9) before = resident_bytes();
  }
  EXPECT_LT(resident_bytes(), before + (size_t(40) << 20)) << "a transport takes more than 1 MiB";
}

// The ports that this process listens on.
std::vector<uint16_t> ports() {
  std::vector<std::string> mine;
  for (auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    mine.push_back(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  std::vector<uint16_t> found;
  std::ifstream table("/proc/net/tcp");
  std::string line;
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::vector<std::string> word(std::istream_iterator<std::string>(words), {});
    if (word.size() < 10 || word[3] != "0A") continue;
    if (std::find(mine.begin(), mine.end(), "socket:[" + word[9] + "]") == mine.end()) continue;
    found.push_back(uint16_t(std::stoul(word[1].substr(word[1].find(':') + 1), nullptr, 16)));
  }
  return found;
}

int knock(uint16_t port, const std::string& words) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(port)};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  EXPECT_EQ(::send(fd, words.data(), words.size(), MSG_NOSIGNAL), ssize_t(words.size()));
  return fd;
}

// UCX's own port. What is forged for UCX itself is beyond us (README.md).
TEST(Ucx, StrangersAtThePortHarmNobody) {
  Pair pair;
  Queue<uint32_t> arrivals;
  std::atomic<bool> stop{false};
  std::vector<std::byte> data(200'000);
  auto send = [&](uint32_t slot) { pair.a->send(there.id, slot, {}, data.data(), data.size(), nullptr); };
  pair.b->open_receiver(there, [&](const Arrival& arrival) {
    arrivals.post(arrival.slot);
    pair.b->release(there.id, arrival.slot);
  });
  pair.a->open_sender(there, [&](uint32_t slot) {
    if (!stop) send(slot);
  });
  send(0);
  auto all = ports();
  ASSERT_GE(all.size(), 2u);
  std::mt19937 random(99);
  std::string noise(4096, '\0');
  for (auto& byte : noise) byte = char(random());
  std::vector<int> open;
  for (uint16_t port : all) {
    open.push_back(knock(port, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"));
    open.push_back(knock(port, noise));
    open.push_back(knock(port, std::string(4096, '\0')));
    open.push_back(knock(port, std::string(4096, '\xff')));
    for (int i = 0; i < 50; ++i) open.push_back(knock(port, i % 2 ? "x" : ""));
    ::close(knock(port, ""));
  }
  for (int i = 0; i < 200; ++i) arrivals.take();
  for (int fd : open) ::close(fd);
  for (int i = 0; i < 200; ++i) arrivals.take();
  stop = true;
  pair.close();
  EXPECT_EQ(pair.losses.size(), 0u);
}

TEST(Ucx, WhatIsMissingIsNamed) {
  auto error_of = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of([] { load_library("libnothing.so.0"); }).find("libucx0"), std::string::npos);
  EXPECT_NE(error_of([] { make_ucx(group_of(0, nullptr), "nonet7"); }).find("nonet7"), std::string::npos);
  EXPECT_NE(error_of([] { make_ucx(group_of(0, nullptr), "lo,nonet7"); }).find("nonet7"), std::string::npos);
  std::string address = wrap_address(1, "words");
  EXPECT_EQ(unwrap_address(1, address), "words");
  EXPECT_THROW(unwrap_address(2, address), Error);
  EXPECT_THROW(unwrap_address(1, address.substr(0, address.size() - 1)), Error);
  EXPECT_THROW(unwrap_address(1, wrap_address(1, std::string(5000, 'x'))), Error);
  address.back() ^= 1;
  EXPECT_THROW(unwrap_address(1, address), Error);
  EXPECT_THROW(unwrap_address(1, ""), Error);
}

}  // namespace
}  // namespace sluice::ucx
