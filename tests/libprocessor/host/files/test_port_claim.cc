// SPDX-License-Identifier: Apache-2.0
#include "src/host/files/port_claim.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "temporary_folder.h"

namespace processor {
namespace {

namespace fs = std::filesystem;

class PortClaimTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"one", "other"}) fs::create_directory(folder_.path() + "/" + name);
  }
  absl::Status Take(const std::string& address, const std::string& directory, PortClaim* claim, int port = 0) {
    return PortClaim::Take(address, port == 0 ? port_ : port, folder_.path() + "/" + directory, claim);
  }

  TemporaryFolder folder_;
  // Nobody listens: a port of this process's own.
  const int port_ = 1 + getpid() % 60000;
};

TEST_F(PortClaimTest, IsSharedByHostsOfOneDirectory) {
  PortClaim first, second, third;
  ASSERT_TRUE(Take("127.0.0.1", "one", &first).ok());
  EXPECT_TRUE(Take("127.0.0.1", "one", &second).ok());
  EXPECT_TRUE(Take("127.0.0.1", "./one/../one", &third).ok()) << "it is the same folder";
}

TEST_F(PortClaimTest, IsRefusedToHostsOfAnother) {
  PortClaim second, other;
  {
    PortClaim first;
    ASSERT_TRUE(Take("127.0.0.1", "one", &first).ok());
    ASSERT_TRUE(Take("127.0.0.1", "one", &second).ok());
  }
  const absl::Status status = Take("127.0.0.1", "other", &other);
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  for (const char* name : {"/one'", "/other'", "127.0.0.1"}) {
    EXPECT_NE(status.message().find(name), std::string::npos) << status;
  }
  EXPECT_TRUE(Take("127.0.0.2", "other", &other).ok()) << "another address is another port";
  second = PortClaim();
  EXPECT_TRUE(Take("127.0.0.1", "other", &other).ok()) << "the last one has gone";
}

TEST_F(PortClaimTest, WildcardAddressCollidesWithEveryAddress) {
  for (const char* all : {"0.0.0.0", "::"}) {
    for (const bool all_first : {true, false}) {
      PortClaim first, second, third;
      ASSERT_TRUE(Take(all_first ? all : "127.0.0.1", "one", &first).ok());
      EXPECT_TRUE(absl::IsAlreadyExists(Take(all_first ? "127.0.0.1" : all, "other", &second))) << all;
      EXPECT_TRUE(Take(all_first ? "127.0.0.1" : all, "one", &third).ok()) << all;
    }
  }
}

TEST_F(PortClaimTest, NeedsAnAddressAndAPort) {
  PortClaim claim;
  for (const char* address : {"", "a/b", "../x", "1.2.3.4\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Take(address, "one", &claim))) << address;
  }
  for (const int port : {-1, 65536}) EXPECT_TRUE(absl::IsInvalidArgument(Take("127.0.0.1", "one", &claim, port)));
  EXPECT_TRUE(Take("localhost", "one", &claim).ok());
  EXPECT_TRUE(absl::IsNotFound(Take("127.0.0.1", "absent", &claim)));
}

}  // namespace
}  // namespace processor
