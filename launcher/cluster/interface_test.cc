// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/interface.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice {
namespace {

TEST(InterfaceOf, NamesTheInterfaceOfAnAddressOrSaysWhichThereAre) {
  EXPECT_EQ(interface_of("127.0.0.1"), "lo");
  for (const char* address : {"203.0.113.9", "", "lo", "0.0.0.0"}) try {
      interface_of(address);
      ADD_FAILURE() << address;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::usage);
      EXPECT_NE(std::string(error.what()).find("127.0.0.1"), std::string::npos);
    }
}

}  // namespace
}  // namespace sluice
