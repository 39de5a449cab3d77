// SPDX-License-Identifier: Apache-2.0
#include "src/tables/resident_table.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "resident_fixture.h"
#include "src/tables/resident_memory.h"

namespace processor {
namespace {

TEST_F(ResidentTableTest, AnswersAsItsFileInSealedMemory) {
  const Table table = MustOpen(Write(Content().Bytes()));
  EXPECT_TRUE(HasContent(*table));
  const ResidentMemory& memory = table->resident()->memory();
  EXPECT_FALSE(table->resident()->is_received());
  EXPECT_LE(memory.huge_bytes(), memory.size());
  EXPECT_EQ(memory.huge_bytes() == 0, memory.page_kind() == PageKind::kSmall);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(table->row(0)) % (2 << 20), 0) << "so that huge pages can be mapped";
  const int writer = open(("/proc/self/fd/" + std::to_string(memory.descriptor())).c_str(), O_RDWR);
  ASSERT_GE(writer, 0);
  EXPECT_EQ(pwrite(writer, "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(writer, 0), -1);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0), MAP_FAILED);
  close(writer);
}

TEST_F(ResidentTableTest, FilesThatAreTruncatedOverwrittenOrRemovedHarmNobody) {
  const std::string bytes = Content().Bytes();
  for (const char digit : {'a', 'b', 'c'}) {
    const std::string path = Write(bytes, digit);
    const Table table = MustOpen(path);
    chmod(path.c_str(), 0600);
    if (digit == 'a') {
      ASSERT_EQ(truncate(path.c_str(), 100), 0);
    }
    if (digit == 'b') std::ofstream(path, std::ios::in | std::ios::binary) << std::string(bytes.size(), 'x');
    if (digit == 'c') unlink(path.c_str());
    EXPECT_TRUE(HasContent(*table)) << digit;
  }
}

TEST_F(ResidentTableTest, DamagedAndTruncatedFilesAreRefused) {
  const std::string bytes = Content().Bytes();
  const size_t index = Get<uint64_t>(bytes, kSectionFields[1]);
  for (const size_t place : {size_t{4096}, size_t{2000000}, index + 70, bytes.size() - 1}) {
    std::string damaged = bytes;
    damaged[place] = static_cast<char>(damaged[place] ^ 1);
    const std::string path = Write(damaged);
    Table table;
    const absl::Status status = Open(path, &table);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << place << status;
    EXPECT_NE(status.message().find("'" + path + "'"), std::string::npos) << status;
  }
  Table table;
  EXPECT_EQ(Open(Write(bytes.substr(0, bytes.size() - 1)), &table).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Shared().empty());
}

TEST_F(ResidentTableTest, NeedsNoRowsAndNoVersionTwo) {
  TableFileContent content;
  EXPECT_EQ(MustOpen(Write(content.Bytes()))->rows(), 0);
  content = Content();
  content.version = 1;
  EXPECT_TRUE(HasContent(*MustOpen(Write(content.Bytes(), 'b'))));
}

TEST_F(ResidentTableTest, MemoryThatIsNotThereIsRefused) {
  std::string bytes = TableFileContent().Bytes();
  // A file with a hole of 8 TB for rows.
  constexpr uint64_t kRows = 1u << 31, kStride = 4096, kBegin = 4096, kEnd = kBegin + kRows * kStride;
  const uint64_t blocks = (kEnd - kTableHeaderBytes + kTableBlockBytes - 1) / kTableBlockBytes;
  Put<uint64_t>(&bytes, 24, kRows);
  Put<uint32_t>(&bytes, 48, kStride);
  Put<uint64_t>(&bytes, kSectionFields[0], kBegin);
  Put<uint64_t>(&bytes, kSectionFields[0] + 8, kRows * kStride);
  Put<uint64_t>(&bytes, kChecksumsField, kEnd);
  Put<uint64_t>(&bytes, kChecksumsField + 8, 4 * blocks);
  Put<uint64_t>(&bytes, 16, kEnd + 4 * blocks);
  Put<uint32_t>(&bytes, 252, Crc32c(bytes.data(), 252));
  const std::string path = folder_.Write("table.emb", bytes.substr(0, kTableHeaderBytes));
  if (truncate(path.c_str(), static_cast<off_t>(kEnd + 4 * blocks)) != 0) GTEST_SKIP() << "no files of 8 TB here";
  Table table;
  const absl::Status status = Open(path, &table);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("bytes of memory needed"), std::string::npos) << status;
}

TEST_F(ResidentTableTest, EqualFilesOfAProcessAreOneTable) {
  const std::string bytes = Content().Bytes();
  const Table one = MustOpen(Write(bytes)), two = MustOpen(Write(bytes)), other = MustOpen(Write(bytes, 'b'));
  EXPECT_EQ(one->row(0), two->row(0));
  EXPECT_NE(one->row(0), other->row(0));
  Table mapped;
  ASSERT_TRUE(EmbeddingTable::Open(Write(bytes), &mapped).ok());
  EXPECT_NE(mapped->row(0), one->row(0));
}

// What other processes do.
class ResidentTableProcess : public ResidentTableTest {};

TEST_F(ResidentTableProcess, HoldsATable) {
  if (std::getenv("HELD_TABLE") == nullptr) return;  // not run by another test
  Table table;
  const absl::Status status =
      EmbeddingTable::Open(std::getenv("HELD_TABLE"), Storage(std::getenv("HELD_FOLDER")), &table);
  char answer = 'x';
  if (status.ok() && HasContent(*table)) answer = table->resident()->is_received() ? 'r' : 'l';
  ASSERT_EQ(write(std::atoi(std::getenv("HELD_PIPE")), &answer, 1), 1) << status;
  for (;;) pause();
}

TEST_F(ResidentTableTest, ProcessesShareMemoryThatOutlivesThem) {
  const std::string bytes = Content().Bytes(), first = Write(bytes), second = Write(bytes), third = Write(bytes);
  OtherProcess one = Other(first);
  ASSERT_EQ(one.Answer(), 'l');
  // Whoever stands still can give as well.
  one.Stop();
  const Table received = MustOpen(second);
  EXPECT_TRUE(received->resident()->is_received());
  one.Kill();
  EXPECT_TRUE(HasContent(*received));
  OtherProcess two = Other(third);
  EXPECT_EQ(two.Answer(), 'r') << "from one that has received it itself";
}

TEST_F(ResidentTableTest, AProcessThatWasKilledIsForgotten) {
  const std::string path = Write(Content().Bytes());
  OtherProcess killed = Other(path);
  ASSERT_EQ(killed.Answer(), 'l');
  killed.Kill();
  EXPECT_EQ(Shared().size(), 1);
  Table table = MustOpen(path);
  EXPECT_FALSE(table->resident()->is_received());
  EXPECT_TRUE(HasContent(*table));
  EXPECT_EQ(Shared().size(), 1) << "its own";
  table.reset();
  EXPECT_TRUE(Shared().empty());
}

TEST_F(ResidentTableTest, ProcessesThatStartTogetherReadTheFileOnce) {
  const std::string path = Write(Content().Bytes());
  std::vector<std::unique_ptr<OtherProcess>> processes;
  for (int i = 0; i < 4; ++i) processes.push_back(std::make_unique<OtherProcess>(path, folder_.Path("shared")));
  std::string answers;
  for (const auto& process : processes) answers += process->Answer();
  std::sort(answers.begin(), answers.end());
  EXPECT_EQ(answers, "lrrr");
  EXPECT_EQ(Shared().size(), 4);
}

// What a process offers that is faulty, or means harm, under the name of a content.
class OfferTest : public ResidentTableTest {
 protected:
  // Learns the name of the content and the size of its memory.
  void SetUp() override {
    path_ = Write(Content().Bytes());
    const Table table = MustOpen(path_);
    content_ = Shared().front().substr(0, 64);
    size_ = table->resident()->memory().size();
    bytes_.assign(reinterpret_cast<const char*>(table->row(0)), size_);
  }

  static int Memfd(const std::string& bytes, int seals) {
    const int made = memfd_create("offered", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(write(made, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    if (seals != 0) {
      EXPECT_EQ(fcntl(made, F_ADD_SEALS, seals), 0);
    }
    return made;
  }

  // Offers `text`, as a process that lives.
  void Offer(const std::string& text) {
    const std::string record = folder_.Write("shared/" + content_ + ".1.0", text);
    const int file = open(record.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(flock(file, LOCK_EX | LOCK_NB), 0);
    const auto begin = std::chrono::steady_clock::now();
    const Table table = MustOpen(path_);
    // A process that loads it would be waited for two seconds.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1900)) << text;
    EXPECT_FALSE(table->resident()->is_received()) << text;
    EXPECT_TRUE(HasContent(*table)) << text;
    close(file);
    unlink(record.c_str());
  }
  void OfferDescriptor(int descriptor) {
    Offer(std::to_string(getpid()) + " " + std::to_string(descriptor));
    close(descriptor);
  }

  static constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  std::string path_, content_, bytes_;
  size_t size_ = 0;
};

TEST_F(OfferTest, WhatIsNoSealedTableIsNotTaken) {
  for (const char* text : {"", "x", "1", "-1 3", "1 -3", "99999999999999999999 1", "1 1 1", "0 0"}) Offer(text);
  Offer(std::to_string(getpid()) + " 9999");
  Offer(std::string(1000, '7'));
  OfferDescriptor(Memfd(bytes_, 0));
  OfferDescriptor(Memfd(bytes_, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  OfferDescriptor(Memfd(bytes_, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE));
  OfferDescriptor(Memfd(bytes_.substr(1), kAll));
  OfferDescriptor(Memfd(bytes_ + "x", kAll));
  OfferDescriptor(Memfd(std::string(size_, 'x'), kAll));
  OfferDescriptor(open(folder_.Write("file", bytes_).c_str(), O_RDONLY | O_CLOEXEC));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  OfferDescriptor(ends[0]);
  close(ends[1]);
  OfferDescriptor(open("/dev/zero", O_RDONLY | O_CLOEXEC));
}

TEST_F(OfferTest, SealedMemoryWithTheRightNameIsTaken) {
  const int memory = Memfd(bytes_, kAll);
  const std::string record =
      folder_.Write("shared/" + content_ + ".1.0", std::to_string(getpid()) + " " + std::to_string(memory));
  const int file = open(record.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(file, LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(MustOpen(path_)->resident()->is_received());
  close(file);
  close(memory);
}

TEST_F(OfferTest, AProcessThatDoesNotGetOnIsNotWaitedFor) {
  const std::string turn = folder_.Write("shared/" + content_ + ".loading", "");
  const int file = open(turn.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(file, LOCK_EX | LOCK_NB), 0);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(HasContent(*MustOpen(path_)));
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(took, std::chrono::seconds(1));
  EXPECT_LT(took, std::chrono::seconds(6));
  close(file);
}

TEST_F(ResidentTableTest, OtherFilesOfTheFolderAreLeftAlone) {
  const std::string digits(64, 'a');
  for (const std::string& name : {std::string("127.0.0.1:8000"), digits, digits + ".x.1", digits + ".1.2.3"}) {
    folder_.Write("shared/" + name, "1 1");
  }
  ASSERT_EQ(chmod(folder_.Path("shared").c_str(), 0700), 0);
  folder_.Write("shared/" + digits + ".1.2", "1 1");
  {
    const Table table = MustOpen(Write(Content().Bytes()));
  }
  EXPECT_EQ(Shared().size(), 4) << "only the record of a process that is gone was removed";
}

TEST_F(ResidentTableTest, AFolderThatOthersMayWriteToIsNotUsed) {
  ASSERT_EQ(mkdir(folder_.Path("shared").c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder_.Path("shared").c_str(), 0777), 0);
  const Table table = MustOpen(Write(Content().Bytes()));
  EXPECT_TRUE(HasContent(*table));
  EXPECT_TRUE(Shared().empty());
}

TEST_F(ResidentTableTest, FilesWithoutAHashAsNameAreNotShared) {
  ASSERT_EQ(mkdir(folder_.Path("shared").c_str(), 0700), 0);
  const Table table = MustOpen(folder_.Write("table.emb", Content().Bytes()));
  EXPECT_TRUE(HasContent(*table));
  EXPECT_TRUE(Shared().empty());
}

}  // namespace
}  // namespace processor
