// SPDX-License-Identifier: Apache-2.0
#include "src/host/files/state_directory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "temporary_folder.h"

namespace processor {
namespace {

namespace fs = std::filesystem;

class StateDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_.path() + "/state");
    const absl::Status status = StateDirectory::Open(folder_.path() + "/state", "host-0", &directory_);
    ASSERT_TRUE(status.ok()) << status;
  }

  // What ReadDesired() says: the text if it changed, else "=".
  std::string Read(absl::Status* status = nullptr) {
    std::string text;
    bool changed = false;
    const absl::Status answer = directory_->ReadDesired(&text, &changed);
    if (status != nullptr) *status = answer;
    return changed ? text : "=";
  }

  TemporaryFolder folder_;
  std::unique_ptr<StateDirectory> directory_;
};

TEST_F(StateDirectoryTest, MakesAndLocksFolderOfHost) {
  EXPECT_EQ(folder_.Read("state/hosts/host-0/lock"), absl::StrCat(getpid(), "\n"));
  std::unique_ptr<StateDirectory> second;
  const absl::Status status = StateDirectory::Open(folder_.path() + "/state", "host-0", &second);
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_NE(status.message().find(absl::StrCat("process ", getpid())), std::string::npos) << status;
  EXPECT_TRUE(StateDirectory::Open(folder_.path() + "/state", "host-1", &second).ok());
  directory_.reset();
  EXPECT_TRUE(StateDirectory::Open(folder_.path() + "/state", "host-0", &directory_).ok()) << "the lock is given back";
}

TEST_F(StateDirectoryTest, HostIdsMustBeFolderNames) {
  std::unique_ptr<StateDirectory> directory;
  for (const std::string& id : {std::string(), std::string("."), std::string(".."), std::string("a/b"),
                                std::string("a b"), std::string(65, 'a'), std::string("\xff")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(StateDirectory::Open(folder_.path(), id, &directory))) << id;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(StateDirectory::Open("", "a", &directory)));
  const absl::Status status = StateDirectory::Open(folder_.path() + "/absent", "a", &directory);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_NE(status.message().find("/absent': no such folder"), std::string::npos) << status;
  EXPECT_FALSE(fs::exists(folder_.path() + "/absent"));
  folder_.Write("file", "");
  EXPECT_FALSE(StateDirectory::Open(folder_.path() + "/file", "a", &directory).ok());
}

TEST_F(StateDirectoryTest, DesiredIsReadWhenItChanges) {
  absl::Status status;
  EXPECT_EQ(Read(&status), "=");
  EXPECT_TRUE(status.ok()) << "a host may start before anybody has said what to serve";
  folder_.Write("state/desired.json", "one");
  EXPECT_EQ(Read(), "one");
  EXPECT_EQ(Read(), "=");
  // Replaced by another file of the same size, as those do who write atomically.
  folder_.Write("state/beside", "two");
  fs::rename(folder_.path() + "/state/beside", folder_.path() + "/state/desired.json");
  EXPECT_EQ(Read(), "two");
  // Or written into, by an editor.
  folder_.Write("state/desired.json", "three");
  EXPECT_EQ(Read(), "three");

  fs::rename(folder_.path() + "/state/desired.json", folder_.path() + "/state/away");
  EXPECT_EQ(Read(&status), "=");
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  Read(&status);
  EXPECT_TRUE(absl::IsNotFound(status)) << "as long as it is away";
  fs::create_directory(folder_.path() + "/state/desired.json");
  EXPECT_EQ(Read(&status), "=");
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  fs::remove(folder_.path() + "/state/desired.json");
  fs::rename(folder_.path() + "/state/away", folder_.path() + "/state/desired.json");
  Read(&status);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(StateDirectoryTest, ReplacesHostFilesAtomically) {
  for (const bool durable : {true, false}) {
    ASSERT_TRUE(directory_->WriteHostFile("actual.json", "a long text", durable).ok());
    ASSERT_TRUE(directory_->WriteHostFile("actual.json", "short", durable).ok());
    EXPECT_EQ(folder_.Read("state/hosts/host-0/actual.json"), "short");
  }
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder_.path() + "/state/hosts/host-0")) files += entry.exists();
  EXPECT_EQ(files, 2) << "actual.json and lock";
}

TEST_F(StateDirectoryTest, FailedWriteKeepsFormerFile) {
  ASSERT_TRUE(directory_->WriteHostFile("actual.json", "before", true).ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full = {10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const absl::Status status = directory_->WriteHostFile("actual.json", std::string(100, 'x'), true);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(folder_.Read("state/hosts/host-0/actual.json"), "before");
  EXPECT_FALSE(fs::exists(folder_.path() + "/state/hosts/host-0/.actual.json.new"));
}

}  // namespace
}  // namespace processor
