// SPDX-License-Identifier: Apache-2.0
// What shared memory promises beyond the suites of transports: a hostile peer is lost and nothing else, strangers at
// the door harm nobody, and memory comes and goes as it should.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "comm/shm/arena.h"
#include "comm/shm/handshake.h"
#include "comm/shm/ring.h"
#include "comm/testing.h"

namespace sluice {
namespace {

using namespace shm;
using testing::group_of;
using testing::Losses;
using testing::Queue;

size_t descriptors() {
  namespace fs = std::filesystem;
  return size_t(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

// ---- memory ---------------------------------------------------------------------------------------------------------

TEST(SharedMemory, OnlyItsMakerWritesAndNobodyResizes) {
  Shared shared = make_shared_memory("test", 8192);
  shared.memory.data()[5] = std::byte(9);
  auto theirs = map_shared_memory(shared.fd, 8192);
  ASSERT_TRUE(theirs);
  EXPECT_EQ(theirs->data()[5], std::byte(9));
  EXPECT_EQ(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, shared.fd.get(), 0), MAP_FAILED);
  EXPECT_NE(mprotect(theirs->data(), 8192, PROT_READ | PROT_WRITE), 0);
  EXPECT_NE(ftruncate(shared.fd.get(), 0), 0);
  EXPECT_NE(write(shared.fd.get(), "x", 1), 1);
}

TEST(SharedMemory, MapsNothingElse) {
  Shared shared = make_shared_memory("test", 8192);
  EXPECT_FALSE(map_shared_memory(shared.fd, 8193)) << "less than was said";
  EXPECT_FALSE(map_shared_memory(shared.fd, SIZE_MAX));
  EXPECT_FALSE(map_shared_memory(shared.fd, 0));
  EXPECT_FALSE(map_shared_memory(Fd(), 64));
  EXPECT_FALSE(map_shared_memory(Fd(open("/dev/zero", O_RDONLY | O_CLOEXEC)), 64));
  EXPECT_FALSE(map_shared_memory(Fd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), 64));
  Fd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 8192), 0);
  EXPECT_FALSE(map_shared_memory(unsealed, 8192)) << "its maker could pull it away";
}

TEST(Arena, PlacesAreAlignedZeroedAndUsedAgain) {
  Arena arena;
  std::vector<std::byte*> places;
  for (size_t bytes : {size_t(0), size_t(1), size_t(64), size_t(65), size_t(5000), size_t(3) << 20, size_t(7)}) {
    auto* place = static_cast<std::byte*>(arena.allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(place) % 64, 0u);
    EXPECT_TRUE(std::all_of(place, place + bytes, [](std::byte b) { return b == std::byte(0); }));
    std::memset(place, 1, bytes);
    places.push_back(place);
  }
  auto spot = arena.find(places[4] + 10, 4990);
  ASSERT_TRUE(spot);
  EXPECT_EQ(spot->segment, 0u);
  EXPECT_EQ(arena.find(places[5], size_t(3) << 20)->segment, 1u) << "too large for the first";
  EXPECT_FALSE(arena.find(places[5], size_t(1) << 30));
  std::byte elsewhere[8];
  EXPECT_FALSE(arena.find(elsewhere, 8));
  for (int i : {1, 3, 2, 4}) arena.release(places[size_t(i)]);  // neighbours, joined in any order
  auto* again = static_cast<std::byte*>(arena.allocate(64 + 64 + 128 + 5000));
  EXPECT_EQ(again, places[1]);
  EXPECT_TRUE(std::all_of(again, again + 5000, [](std::byte b) { return b == std::byte(0); }));
  arena.release(nullptr);
}

TEST(Arena, SaysHowMuchThereIsNot) {
  Arena arena;
  try {
    arena.allocate(size_t(1) << 60);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("1152921504606846976 bytes"), std::string::npos) << error.what();
  }
  arena.allocate(100);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(arena.release(&arena), "not handed out");
}

// ---- rings ----------------------------------------------------------------------------------------------------------

TEST(Ring, WhatHasNoRoomWaitsInOrder) {
  auto a = make_shared_memory("a", sizeof(Page)), b = make_shared_memory("b", sizeof(Page));
  auto &page_a = *reinterpret_cast<Page*>(a.memory.data()), &page_b = *reinterpret_cast<Page*>(b.memory.data());
  Writer writer(page_a, page_b);
  Reader reader(page_b, page_a);
  uint32_t rung = 0, taken = 0;
  Doorbell bell;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 1300; ++i) ASSERT_TRUE(writer.push({.wire = rung++}));
    EXPECT_TRUE(writer.blocked());
    EXPECT_TRUE(reader.should_call());
    while (taken < rung) {
      for (int i = 0; i < 100 && reader.pop(bell); ++i) ASSERT_EQ(bell.wire, taken++);
      ASSERT_TRUE(writer.flush());
    }
    EXPECT_FALSE(reader.pop(bell));
    EXPECT_FALSE(writer.blocked());
    EXPECT_FALSE(reader.should_call());
  }
}

TEST(Ring, BelievesNoCountThatCannotBe) {
  for (uint64_t head : {uint64_t(600), UINT64_MAX, uint64_t(1) << 63}) {
    auto a = make_shared_memory("a", sizeof(Page)), b = make_shared_memory("b", sizeof(Page));
    auto &page_a = *reinterpret_cast<Page*>(a.memory.data()), &page_b = *reinterpret_cast<Page*>(b.memory.data());
    Writer writer(page_a, page_b);
    for (uint64_t i = 0; i < ring_places; ++i) ASSERT_TRUE(writer.push({}));
    page_b.head = head;
    EXPECT_FALSE(writer.push({}));
  }
}

// ---- a hostile peer -------------------------------------------------------------------------------------------------

// Process 1, which has the key, but behaves as the test likes. The transport is process 0.
class Hostile : public ::testing::Test {
 protected:
  Losses losses_;
  Queue<Arrival> arrivals_;
  std::unique_ptr<ProcessTransport> transport_;
  Shared page_ = make_shared_memory("hostile", sizeof(Page)), memory_ = make_shared_memory("hostile", 1 << 20);
  Fd socket_;
  uint64_t rung_ = 0;

  struct Note {
    uint32_t kind, segment;
    uint64_t bytes;
  };
  void SetUp() override { start(page_.fd.get()); }
  void start(int page, int silence_ms_max = 60'000) {
    transport_ = make_shm(group_of(0, &losses_, silence_ms_max));
    Door door = open_door();
    std::string address = door.name;
    std::thread other([&] { socket_ = meet_them(std::move(door), page); });
    try {
      transport_->connect({"", address});
    } catch (...) {
      other.join();
      throw;
    }
    other.join();
    transport_->open_receiver(from_them_, [this](const Arrival& arrival) { arrivals_.post(arrival); });
    transport_->open_sender(to_them_, [](uint32_t) {});
  }
  void TearDown() override { transport_->close(); }
  Fd meet_them(Door door, int page) {
    auto met = meet(
        group_of(1, nullptr), std::move(door), {transport_->address(), ""}, [&](int) { return page; },
        std::chrono::seconds(60));
    return std::move(met[0].socket);
  }
  Page& page() { return *reinterpret_cast<Page*>(page_.memory.data()); }
  void ring(const Doorbell& bell) {
    shm::Place& place = page().places[rung_ % ring_places];
    place.bell = bell;
    place.turn.store(++rung_);
    note({0, 0, 0});
  }
  void note(const Note& note, int passed = -1) { send_message(socket_, bytes_of(note), passed); }
  void share_memory() { note({1, 0, 1 << 20}, memory_.fd.get()); }
  std::string why_lost() {
    auto [process, why] = losses_.take();
    EXPECT_EQ(process, 1);
    EXPECT_EQ(losses_.size(), 0u);
    return why;
  }

  Wire from_them_{.id = 5, .from_rank = 1, .to_rank = 0, .slots = 2, .bytes_max = 256};
  Wire to_them_{.id = 6, .from_rank = 0, .to_rank = 1, .slots = 2, .bytes_max = 256};
  Doorbell good_{.wire = 5, .segment = 0, .offset = 128, .bytes = 256};
};

TEST_F(Hostile, IsFirstOfAllBelievedWhenItBehaves) {
  std::memset(memory_.memory.data(), 3, 1 << 20);
  share_memory();
  ring(good_);
  Arrival arrival = arrivals_.take();
  EXPECT_EQ(arrival.data[255], std::byte(3));
  EXPECT_EQ(losses_.size(), 0u);
}

struct Forgery {
  const char* name;
  void (*forge)(Doorbell&);
  const char* why;
  bool first = false;  // a good one before it
};
constexpr Forgery forgeries[] = {
    {"kind", [](Doorbell& bell) { bell.kind = Kind(77); }, "no known kind"},
    {"wire", [](Doorbell& bell) { bell.wire = 12345; }, "does not come from it"},
    {"wire that leads to it", [](Doorbell& bell) { bell.wire = 6; }, "does not come from it"},
    {"slot", [](Doorbell& bell) { bell.slot = 2; }, "a slot that its wire has not"},
    {"slot twice", [](Doorbell&) {}, "was not given back", true},
    {"bytes", [](Doorbell& bell) { bell.bytes = 257; }, "more than a slot"},
    {"segment", [](Doorbell& bell) { bell.segment = 1; }, "memory that it has not shared"},
    {"no segment", [](Doorbell& bell) { bell.segment = no_segment; }, "memory that it has not shared"},
    {"offset", [](Doorbell& bell) { bell.offset = (1 << 20) - 255; }, "memory that it has not shared"},
    {"offset that wraps", [](Doorbell& bell) { bell.offset = UINT64_MAX - 100; }, "memory that it has not shared"},
    {"bytes that wrap", [](Doorbell& bell) { bell.bytes = UINT64_MAX; }, "memory that it has not shared"},
    {"micro-batch", [](Doorbell& bell) { bell.header.micro_batch = 1; }, "header"},
    {"micro-batches", [](Doorbell& bell) { bell.header.micro_batches = 0; }, "header"},
    {"extent", [](Doorbell& bell) { bell.header.extent[1] = -1; }, "header"},
    {"release of its own", [](Doorbell& bell) { bell.kind = Kind::release; }, "does not lead to it"},
    {"release of nothing", [](Doorbell& bell) { bell = {.kind = Kind::release, .wire = 6}; }, "was not sent"},
    {"release of no slot", [](Doorbell& bell) { bell = {.kind = Kind::release, .wire = 6, .slot = 9}; },
     "was not sent"},
    {"answer", [](Doorbell& bell) { bell = {.kind = Kind::refreshed, .wire = 6}; }, "nobody asked"},
};

class Forged : public Hostile, public ::testing::WithParamInterface<Forgery> {};

TEST_P(Forged, DoorbellLosesIt) {
  share_memory();
  if (GetParam().first) ring(good_);
  Doorbell bell = good_;
  GetParam().forge(bell);
  ring(bell);
  std::string why = why_lost();
  EXPECT_NE(why.find(GetParam().why), std::string::npos) << GetParam().name << ": " << why;
  EXPECT_EQ(arrivals_.size(), GetParam().first ? 1u : 0u);
}
INSTANTIATE_TEST_SUITE_P(Doorbells, Forged, ::testing::ValuesIn(forgeries), [](const auto& info) {
  std::string name = info.param.name;
  std::erase_if(name, [](char c) { return !std::isalnum(c); });
  return name;
});

// A wire between the transport and process 2: process 1 has no business with either of its ends.
TEST(HostileToThird, CannotSpeakForAnother) {
  for (Kind kind : {Kind::arrival, Kind::release}) {
    Losses losses;
    auto group = [&](int process) {
      ProcessGroup made = group_of(process, &losses);
      made.processes = 3;
      made.process_of_rank = {0, 1, 2};
      return made;
    };
    auto transport = make_shm(group(0)), honest = make_shm(group(2));
    Shared page = make_shared_memory("hostile", sizeof(Page));
    Door door = open_door();
    std::vector<std::string> addresses{transport->address(), door.name, honest->address()};
    Fd socket;
    std::thread two([&] { honest->connect({addresses[0], "", ""}); });
    std::thread one([&] {
      auto met = meet(
          group(1), std::move(door), {addresses[0], "", ""}, [&](int) { return page.fd.get(); },
          std::chrono::seconds(60));
      socket = std::move(met[0].socket);
    });
    transport->connect({"", addresses[1], addresses[2]});
    one.join();
    two.join();
    Wire in{.id = 1, .from_rank = 2, .to_rank = 0, .slots = 1}, out{.id = 2, .from_rank = 0, .to_rank = 2, .slots = 1};
    transport->open_receiver(in, [](const Arrival&) { ADD_FAILURE(); });
    transport->open_sender(out, [](uint32_t) { ADD_FAILURE(); });
    honest->open_receiver(out, [](const Arrival&) {});
    transport->send(2, 0, {}, nullptr, 0, nullptr);
    shm::Place& place = reinterpret_cast<Page*>(page.memory.data())->places[0];
    place.bell = {.kind = kind, .wire = kind == Kind::arrival ? 1u : 2u};
    place.turn.store(1);
    send_message(socket, std::as_bytes(std::span("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16)));
    EXPECT_EQ(losses.take().first, 1);
    transport->close();
    honest->close();
  }
}

TEST_F(Hostile, SegmentsThatAreNoneLoseIt) {
  Fd unsealed(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), 1 << 20), 0);
  for (int round = 0; round < 5; ++round) {
    if (round == 0) note({1, 0, 1 << 20});  // without a descriptor
    if (round == 1) note({1, 0, 1 << 20}, unsealed.get());
    if (round == 2) note({1, 7, 1 << 20}, memory_.fd.get());        // out of turn
    if (round == 3) note({1, 0, (1 << 20) + 1}, memory_.fd.get());  // larger than it is
    if (round == 4) note({99, 0, 0});
    EXPECT_NE(why_lost().find("no sense"), std::string::npos) << round;
    TearDown();
    page_ = make_shared_memory("hostile", sizeof(Page));
    SetUp();
  }
}

TEST_F(Hostile, WordsOfAnotherSizeAreItsEnd) {
  send_message(socket_, std::as_bytes(std::span("GET / HTTP/1.1\r\n\r\n", 18)));
  EXPECT_NE(why_lost().find("ended"), std::string::npos);
}

TEST_F(Hostile, ACountThatCannotBeLosesIt) {
  Wire wire{.id = 9, .from_rank = 0, .to_rank = 1, .slots = 600, .bytes_max = 8};
  transport_->open_sender(wire, [](uint32_t) {});
  page().head = 700;
  for (uint32_t slot = 0; slot < 600; ++slot) transport_->send(9, slot, {}, nullptr, 0, nullptr);
  EXPECT_NE(why_lost().find("count"), std::string::npos);
}

TEST_F(Hostile, AHeartThatNeverBeatsLosesIt) {
  TearDown();
  page_ = make_shared_memory("hostile", sizeof(Page));
  start(page_.fd.get(), 100);
  EXPECT_NE(why_lost().find("said nothing"), std::string::npos);
}

TEST_F(Hostile, APageThatIsNoneIsRefused) {
  TearDown();
  Fd small(memfd_create("small", MFD_CLOEXEC));
  EXPECT_THROW(start(small.get()), Error);
}

// ---- strangers at the door ------------------------------------------------------------------------------------------

TEST(Door, StrangersHarmNobody) {
  Losses losses;
  // The higher number is dialled, so strangers stand at the door of process 1.
  auto a = make_shm(group_of(0, &losses)), b = make_shm(group_of(1, &losses));
  Fd opened(open("/dev/null", O_RDONLY | O_CLOEXEC));
  size_t before = descriptors();
  std::vector<Fd> strangers;
  auto stranger = [&](std::span<const std::byte> words) {
    Fd socket;
    ASSERT_EQ(dial(b->address(), socket), Dialled::connected);
    if (!words.empty()) send_message(socket, words, opened.get());
    strangers.push_back(std::move(socket));
  };
  std::vector<std::byte> junk(4000, std::byte(0xee)), hello(64);
  const char* version = "sluice-1";
  std::memcpy(hello.data(), version, 8);
  for (int i = 0; i < 100; ++i) {
    stranger({});  // half-open
    stranger(junk);
    stranger(std::as_bytes(std::span("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27)));
    stranger(hello);
  }
  Fd stream(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, b->address().data(), b->address().size());
  EXPECT_NE(::connect(stream.get(), reinterpret_cast<sockaddr*>(&address),
                      socklen_t(offsetof(sockaddr_un, sun_path) + 1 + b->address().size())),
            0);
  testing::connect(*a, *b);
  Fd socket;
  EXPECT_EQ(dial(b->address(), socket), Dialled::nobody) << "the door is gone once all have met";
  strangers.clear();
  stream.reset();
  a->close();
  b->close();
  a.reset();
  b.reset();
  EXPECT_LE(descriptors(), before) << "what strangers pass is not kept";
  EXPECT_EQ(losses.size(), 0u);
}

// Whoever is dialled proves the key first: without it, it gets neither a proof nor memory.
TEST(Door, AListenerWithoutTheKeyGetsNothing) {
  auto transport = make_shm(group_of(0, nullptr));
  Door door = open_door();
  Fd guest, passed;
  std::vector<std::byte> words(4096);
  size_t size = 0;
  std::thread other([&] {
    while (!(guest = accept_guest(door.socket))) std::this_thread::yield();
    while (receive_message(guest, words, size) == Received::nothing) std::this_thread::yield();
    send_message(guest, std::span(words).first(64));
    while (receive_message(guest, words, size, &passed) == Received::nothing) std::this_thread::yield();
  });
  try {
    transport->connect({"", door.name});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("another key"), std::string::npos) << error.what();
  }
  other.join();
  EXPECT_EQ(size, 0u);
  EXPECT_FALSE(passed);
}

TEST(Door, NamesLieInNoFileSystem) {
  auto transport = make_shm(group_of(0, nullptr));
  std::ifstream sockets("/proc/net/unix");
  std::string all((std::istreambuf_iterator<char>(sockets)), std::istreambuf_iterator<char>());
  EXPECT_NE(all.find("@" + transport->address()), std::string::npos);
}

// ---- many doorbells -------------------------------------------------------------------------------------------------

// More slots than a ring has places, and a receiver that takes nothing for a while.
TEST(Shm, MoreDoorbellsThanPlacesArriveInOrder) {
  testing::Ends ends({"shm", nullptr, make_shm});
  constexpr uint32_t slots = 3000;
  Wire wire{.id = 1, .from_rank = 0, .to_rank = 1, .slots = slots, .bytes_max = 8};
  std::mutex gate;
  Queue<Arrival> arrivals;
  Queue<uint32_t> releases;
  ends.at(1).open_receiver(wire, [&](const Arrival& arrival) {
    std::lock_guard lock(gate);
    arrivals.post(arrival);
  });
  ends.at(0).open_sender(wire, [&](uint32_t slot) { releases.post(slot); });
  for (int round = 0; round < 3; ++round) {
    {
      std::lock_guard lock(gate);
      for (uint32_t slot = 0; slot < slots; ++slot) ends.at(0).send(1, slot, {}, nullptr, 0, nullptr);
    }
    for (uint32_t slot = 0; slot < slots; ++slot) ASSERT_EQ(arrivals.take().slot, slot);
    for (uint32_t slot = 0; slot < slots; ++slot) ends.at(1).release(1, slot);
    for (uint32_t slot = 0; slot < slots; ++slot) ASSERT_EQ(releases.take(), slot);
  }
  ends.close();
}

// Memory that comes when all are connected long ago is mapped when it is first sent from.
TEST(Shm, SegmentsMayComeLate) {
  testing::Ends ends({"shm", nullptr, make_shm});
  Wire wire{.id = 1, .from_rank = 0, .to_rank = 1, .slots = 1, .bytes_max = size_t(80) << 20};
  Queue<Arrival> arrivals;
  Queue<uint32_t> releases;
  ends.at(1).open_receiver(wire, [&](const Arrival& arrival) { arrivals.post(arrival); });
  ends.at(0).open_sender(wire, [&](uint32_t slot) { releases.post(slot); });
  for (size_t size : {size_t(100), size_t(2) << 20, size_t(70) << 20, size_t(5) << 20, size_t(80) << 20}) {
    std::byte* memory = ends.memory(0, size);
    memory[size - 1] = std::byte(size >> 20);
    ends.at(0).send(1, 0, {}, memory, size, nullptr);
    Arrival arrival = arrivals.take();
    EXPECT_EQ(arrival.data[size - 1], std::byte(size >> 20));
    ends.at(1).release(1, 0);
    releases.take();
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::byte elsewhere[8] = {};
  EXPECT_DEATH(ends.at(0).send(1, 0, {}, elsewhere, 8, nullptr), "memory");
  ends.close();
}

}  // namespace
}  // namespace sluice
