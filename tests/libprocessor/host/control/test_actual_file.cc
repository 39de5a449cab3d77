// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/actual_file.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "temporary_folder.h"

namespace {

std::atomic<int> synced_files{0};

}  // namespace

// Takes the place of the C library's function in this program.
extern "C" int fsync(int file) {
  ++synced_files;
  return static_cast<int>(syscall(SYS_fsync, file));
}

namespace processor {
namespace {

TEST(ActualFileTest, WritesEachChangeAndSyncsNone) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() + "/state");
  std::unique_ptr<StateDirectory> directory;
  ASSERT_TRUE(StateDirectory::Open(folder.path() + "/state", "host-0", &directory).ok());
  ActualFile actual(directory.get(), "host-0");
  const Instances instances;
  synced_files = 0;
  for (int number = 0; number < 5; ++number) {
    // As the memory of a version does each second.
    const std::string address = absl::StrCat("127.0.0.1:", 8500 + number);
    actual.SetEndpoint("grpc", address);
    actual.Write(instances);
    EXPECT_NE(folder.Read("state/hosts/host-0/actual.json").find(address), std::string::npos);
  }
  EXPECT_EQ(synced_files, 0);
  ASSERT_TRUE(directory->WriteHostFile("accepted.json", "{}", /*durable=*/true).ok());
  EXPECT_EQ(synced_files, 2) << "of a file and its folder, expected to be counted";
}

}  // namespace
}  // namespace processor
