// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "launcher/cluster/cluster.h"
#include "launcher/process.h"

namespace sluice {
namespace {

std::string file_with(const std::string& text, mode_t mode) {
  std::string path = ::testing::TempDir() + "secret" + std::to_string(getpid());
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
  return path;
}

TEST(Secret, ComesBackFromItsFileAndFromANamelessOne) {
  Secret secret = make_secret();
  EXPECT_NE(text_of(secret), text_of(make_secret()));
  auto path = file_with(text_of(secret) + "\n", 0600);
  EXPECT_EQ(load_secret(path).bytes, secret.bytes);
  unlink(path.c_str());
  Handle nameless = make_nameless_file(text_of(secret));
  EXPECT_EQ(load_secret(path_of(nameless)).bytes, secret.bytes);
}

TEST(Secret, AFileThatOthersReadOrThatHoldsNoneIsRefused) {
  std::string good = text_of(make_secret());
  auto refuses = [](const std::string& text, mode_t mode) {
    auto path = file_with(text, mode);
    EXPECT_THROW(load_secret(path), Error) << text;
    unlink(path.c_str());
  };
  refuses(good, 0640);
  refuses(good, 0604);
  refuses("", 0600);
  refuses(good.substr(1), 0600);
  refuses(good + "0", 0600);
  refuses(good.substr(1) + "g", 0600);
  refuses(good.substr(1) + "A", 0600);
  refuses(std::string(100'000, 'a'), 0600);
  EXPECT_THROW(load_secret("/no/such/file"), Error);
  EXPECT_THROW(load_secret("/dev/null"), Error);
  EXPECT_THROW(load_secret(::testing::TempDir()), Error);
}

TEST(Address, IsHostAndPort) {
  EXPECT_EQ(parse_address("head:7700").host, "head");
  EXPECT_EQ(parse_address("10.0.0.1:1").port, 1);
  EXPECT_EQ(parse_address("[::1]:65535").host, "::1");
  EXPECT_EQ(text_of(parse_address("[::1]:7700")), "[::1]:7700");
  for (auto* wrong : {"", "head", ":7700", "head:", "head:0", "head:65536", "head:99999999999999999999", "head:7x",
                      "::1:7700", "[]:7", "head:-1", "head: 7"})
    EXPECT_THROW(parse_address(wrong), Error) << wrong;
}

TEST(Environment, NamesAClusterWithBothOrNone) {
  unsetenv("SLUICE_CLUSTER"), unsetenv("SLUICE_SECRET_FILE");
  EXPECT_FALSE(cluster_of_environment().has_value());
  setenv("SLUICE_CLUSTER", "head:7700", 1);
  EXPECT_THROW(cluster_of_environment(), Error);
  Secret secret = make_secret();
  Handle file = make_nameless_file(text_of(secret));
  setenv("SLUICE_SECRET_FILE", path_of(file).c_str(), 1);
  auto credentials = cluster_of_environment();
  ASSERT_TRUE(credentials.has_value());
  EXPECT_EQ(credentials->secret.bytes, secret.bytes);
  unsetenv("SLUICE_CLUSTER");
  EXPECT_THROW(cluster_of_environment(), Error);
  unsetenv("SLUICE_SECRET_FILE");
}

}  // namespace
}  // namespace sluice
