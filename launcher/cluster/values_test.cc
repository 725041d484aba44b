// SPDX-License-Identifier: Apache-2.0
// Values survive the wire, and no bytes harm who reads them.
#include <capnp/serialize.h>
#include <gtest/gtest.h>

#include <random>

#include "launcher/cluster/frames.h"
#include "launcher/cluster/rpc.h"

namespace sluice {
namespace {

Command sample_command() {
  Command command{.kind = Command::feed, .name = "w", .ranks = {3, 1}, .number = -7};
  command.extents[1] = 5;
  command.chunks = {{"x", DType::int64, {2, 3}, 48, 8, std::vector<std::byte>(16, std::byte(9))}};
  command.last = true;
  return command;
}

Setup sample_setup() {
  Setup setup{.request = {.name = "net", .ranks = 3, .plan_bytes = 10, .plan_hash = 11, .plugins = {{"a.so", "ff"}}},
              .run = 77,
              .process = 1};
  setup.request.threads = 2, setup.request.delay_seed = 5, setup.request.watchdog_ms = 60'000;
  setup.key[31] = 8;
  setup.process_of_rank = {0, 1, 1};
  setup.host_of_process = {"a", "b"};
  setup.workers_on_host = 4, setup.silence_ms = 900;
  return setup;
}

TEST(Values, SurviveTheWire) {
  capnp::MallocMessageBuilder message;
  put(message.initRoot<wire::Command>(), sample_command());
  Command command = command_of(message.getRoot<wire::Command>().asReader());
  EXPECT_EQ(command.kind, Command::feed);
  EXPECT_EQ(command.ranks, (std::vector<int>{3, 1}));
  EXPECT_EQ(command.number, -7);
  EXPECT_EQ(command.extents[1], 5);
  ASSERT_EQ(command.chunks.size(), 1u);
  EXPECT_EQ(command.chunks[0].dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(command.chunks[0].offset, 8u);
  EXPECT_EQ(command.chunks[0].data, sample_command().chunks[0].data);
  EXPECT_TRUE(command.last);

  capnp::MallocMessageBuilder other;
  put(other.initRoot<wire::Setup>(), sample_setup());
  sluice::Setup setup = setup_of(other.getRoot<wire::Setup>().asReader());
  EXPECT_EQ(setup.request.plugins, sample_setup().request.plugins);
  EXPECT_EQ(setup.key, sample_setup().key);
  EXPECT_EQ(setup.host_of_process, sample_setup().host_of_process);
  EXPECT_EQ(setup.silence_ms, 900);

  capnp::MallocMessageBuilder third;
  Failure failure{Error(Code::index, "what", {"net.py", 7}, "next"), 2};
  put(third.initRoot<wire::Failure>(), failure);
  auto back = failure_of(third.getRoot<wire::Failure>().asReader());
  ASSERT_TRUE(back.has_value());
  EXPECT_STREQ(back->error.what(), failure.error.what());
  EXPECT_EQ(back->error.code(), Code::index);
  EXPECT_EQ(back->lost_process, 2);
}

TEST(Values, ASetupThatDoesNotFitIsRefused) {
  auto refuses = [](auto change) {
    sluice::Setup setup = sample_setup();
    change(setup);
    capnp::MallocMessageBuilder message;
    put(message.initRoot<wire::Setup>(), setup);
    EXPECT_THROW(setup_of(message.getRoot<wire::Setup>().asReader()), Error);
  };
  refuses([](auto& s) { s.process = 2; });
  refuses([](auto& s) { s.process = -1; });
  refuses([](auto& s) { s.process_of_rank[0] = 9; });
  refuses([](auto& s) { s.process_of_rank.pop_back(); });
  refuses([](auto& s) { s.host_of_process.clear(); });
  refuses([](auto& s) { s.silence_ms = 0; });
  refuses([](auto& s) { s.request.ranks = 0; });
  refuses([](auto& s) { s.request.plan_bytes = uint64_t(1) << 40; });
  refuses([](auto& s) { s.request.threads = -1; });
}

// Reads whatever the bytes hold; only the two kinds of exception may come of it.
template <class Schema, class Read>
void read_any(kj::ArrayPtr<const capnp::word> words, Read&& read) {
  try {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = FrameCheck::message_bytes_max / 8;
    options.nestingLimit = 32;
    capnp::FlatArrayMessageReader message(words, options);
    read(message.getRoot<Schema>());
  } catch (const Error&) {
  } catch (const kj::Exception&) {
  }
}

TEST(Values, NoBytesHarmWhoReadsThem) {
  capnp::MallocMessageBuilder command, setup;
  put(command.initRoot<wire::Command>(), sample_command());
  put(setup.initRoot<wire::Setup>(), sample_setup());
  std::mt19937 random(2);
  for (int i = 0; i < 4000; ++i) {
    auto words = capnp::messageToFlatArray(i % 2 ? command : setup);
    auto bytes = words.asBytes();
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes)
      bytes[random() % bytes.size()] ^= uint8_t(1 << random() % 8);
    FrameCheck check;
    if (!check.take({reinterpret_cast<const std::byte*>(bytes.begin()), bytes.size()})) continue;
    read_any<wire::Command>(words, [](auto reader) { command_of(reader); });
    read_any<wire::Setup>(words, [](auto reader) { setup_of(reader); });
    read_any<wire::Event>(words, [](auto reader) { event_of(reader); });
    read_any<wire::Reply>(words, [](auto reader) { reply_of(reader); });
    read_any<wire::JobCall>(words, [](auto reader) { job_call_of(reader); });
  }
}

}  // namespace
}  // namespace sluice
