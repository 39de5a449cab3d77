// SPDX-License-Identifier: Apache-2.0
#include "src/host/request_log/record_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "record_files.h"
#include "temporary_folder.h"

namespace processor {
namespace {

namespace fs = std::filesystem;
using Records = std::vector<std::string>;

constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr int64_t kFraming = 16;

class RecordFolderTest : public testing::Test {
 protected:
  std::string Path() const { return above_.path() + "/requests/ranking"; }
  Records Files() const { return FilesIn(Path()); }

  TemporaryFolder above_;
  RecordFolder folder_{Path()};
};

TEST_F(RecordFolderTest, TensorFlowReadsTheRecords) {
  const mode_t mask = umask(022);
  const Records records = {"one", "", std::string(100000, 'x')};
  for (const std::string& record : records) ASSERT_TRUE(folder_.Append(record, kMaxFileBytes, 8).ok());
  umask(mask);
  ASSERT_EQ(Files().size(), 1);
  const std::string name = Files().front();
  EXPECT_EQ(name.size(), std::string("1700000000000000.tfrecord").size());
  EXPECT_EQ(RecordsIn(Path()), records);
  struct stat found;
  ASSERT_EQ(stat((Path() + "/" + name).c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0640);
  for (const std::string& folder : {Path(), above_.path() + "/requests"}) {
    ASSERT_EQ(stat(folder.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0750) << folder;
  }
}

TEST_F(RecordFolderTest, FilesAreBoundedInSizeAndNumber) {
  const std::string record(1000 - kFraming, 'x');
  for (int i = 0; i < 95; ++i) {
    ASSERT_TRUE(folder_.Append(absl::StrCat(i, record).substr(0, record.size()), 10000, 3).ok());
    uintmax_t bytes = 0;
    for (const std::string& name : Files()) bytes += fs::file_size(Path() + "/" + name);
    ASSERT_LE(bytes, 30000);
  }
  EXPECT_EQ(Files().size(), 3);
  const Records left = RecordsIn(Path());
  ASSERT_EQ(left.size(), 25) << "the last file has five";
  EXPECT_EQ(left.front().substr(0, 2), "70");
  EXPECT_EQ(left.back().substr(0, 2), "94");
}

TEST_F(RecordFolderTest, LargerRecordHasItsOwnFile) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(folder_.Append(std::string(9000, 'x'), 4096, 2).ok());
  EXPECT_EQ(Files().size(), 2);
  EXPECT_EQ(RecordsIn(Path()).size(), 2);
}

TEST_F(RecordFolderTest, LowerFileLimitAppliesFromTheNextRecord) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(folder_.Append(std::string(5000, 'x'), 4096, 8).ok());
  EXPECT_EQ(Files().size(), 5);
  ASSERT_TRUE(folder_.Append("small", kMaxFileBytes, 2).ok());
  EXPECT_EQ(Files().size(), 2);
  EXPECT_EQ(RecordsIn(Path()).back(), "small");
}

TEST_F(RecordFolderTest, AnotherHostBeginsItsOwnFile) {
  ASSERT_TRUE(folder_.Append("before", kMaxFileBytes, 8).ok());
  RecordFolder restarted(Path());
  ASSERT_TRUE(restarted.Append("after", kMaxFileBytes, 8).ok());
  EXPECT_EQ(Files().size(), 2);
  EXPECT_EQ(RecordsIn(Path()), (Records{"before", "after"}));
}

TEST_F(RecordFolderTest, NamesRiseEvenIfTheClockIsSetBack) {
  above_.Write("requests/ranking/4000000000000000.tfrecord", "");
  above_.Write("requests/ranking/3000000000000000.tfrecord", "");
  above_.Write("requests/ranking/notes.txt", "not ours");
  ASSERT_TRUE(folder_.Append("x", kMaxFileBytes, 2).ok());
  EXPECT_EQ(Files(), (Records{"4000000000000000.tfrecord", "4000000000000001.tfrecord", "notes.txt"}));
}

TEST_F(RecordFolderTest, RecreatesRemovedFilesAndFolders) {
  ASSERT_TRUE(folder_.Append("first", kMaxFileBytes, 8).ok());
  fs::remove(Path() + "/" + Files().front());
  ASSERT_TRUE(folder_.Append("second", kMaxFileBytes, 8).ok());
  EXPECT_EQ(RecordsIn(Path()), (Records{"second"}));
  fs::remove_all(above_.path() + "/requests");
  ASSERT_TRUE(folder_.Append("third", kMaxFileBytes, 8).ok());
  EXPECT_EQ(RecordsIn(Path()), (Records{"third"}));
}

TEST_F(RecordFolderTest, ErrorNamesFolderThatCannotBeMade) {
  above_.Write("requests", "a file");
  const absl::Status status = folder_.Append("x", kMaxFileBytes, 8);
  EXPECT_EQ(status.message(), absl::StrCat("'", Path(), "': cannot be made: Not a directory"));
  fs::remove(above_.path() + "/requests");
  EXPECT_TRUE(folder_.Append("x", kMaxFileBytes, 8).ok());
}

TEST_F(RecordFolderTest, RemovesPartiallyWrittenRecord) {
  ASSERT_TRUE(folder_.Append("whole", kMaxFileBytes, 8).ok());
  // A file of 100 bytes is full, as a disk might be.
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit full = before;
  full.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const absl::Status failed = folder_.Append(std::string(200, 'x'), kMaxFileBytes, 8);
  const auto size = fs::file_size(Path() + "/" + Files().front());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(failed.message(), absl::StrCat("'", Path(), "': a record cannot be written: No space left on device"));
  EXPECT_EQ(size, 5 + kFraming);
  ASSERT_TRUE(folder_.Append("later", kMaxFileBytes, 8).ok());
  EXPECT_EQ(RecordsIn(Path()), (Records{"whole", "later"}));
}

}  // namespace
}  // namespace processor
