// SPDX-License-Identifier: Apache-2.0
#include "src/tables/delta_segment.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "delta_file.h"
#include "temporary_folder.h"

namespace processor {
namespace {

absl::Status OpenDelta(const std::string& path) {
  std::unique_ptr<const DeltaSegment> segment;
  const absl::Status status = DeltaSegment::Open(path, &segment);
  EXPECT_EQ(status.ok(), segment != nullptr);
  return status;
}

void ExpectNotOpened(const std::string& path, absl::StatusCode code, const std::string& text) {
  const absl::Status status = OpenDelta(path);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(status.message().find("segment '" + path + "'"), std::string::npos) << status;
  EXPECT_NE(status.message().find(text), std::string::npos) << status;
}

TEST(DeltaSegment, ReturnsWhatWasWritten) {
  const TemporaryFolder folder;
  const DeltaFileContent made = VariedDelta();
  std::unique_ptr<const DeltaSegment> segment;
  const absl::Status status = DeltaSegment::Open(folder.Write("x.delta", made.Bytes()), &segment);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(segment->tables().size(), 3);
  const DeltaTable& integers = segment->tables()[0];
  EXPECT_EQ(integers.name, "a");
  EXPECT_EQ(integers.changed.integers[3], 1 << 20);
  EXPECT_EQ(integers.rows[11], -0.25f);
  EXPECT_EQ(integers.deleted.integers[0], -6);
  EXPECT_EQ(integers.default_numbers[1], 2);
  EXPECT_EQ(integers.default_rows[5], -1.75f);
  EXPECT_EQ(segment->tables()[1].changed.string(2), "two");
  EXPECT_EQ(segment->tables()[1].deleted.string(0), "three");
  EXPECT_EQ(segment->tables()[2].key_kind, DeltaKeyKind::kRowNumber);
  EXPECT_EQ(segment->variables()[1].shape, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(segment->variables()[1].data[9], -0.75f);
  EXPECT_EQ(segment->streams()[1].position, UINT64_MAX);
  EXPECT_EQ(segment->header().previous, made.header.previous);
  EXPECT_NE(segment->header().chain, ChainHash{});
}

TEST(DeltaSegment, ErrorsNamePathsThatAreNotFiles) {
  const TemporaryFolder folder;
  ExpectNotOpened(folder.Path("missing.delta"), absl::StatusCode::kNotFound, "no such file");
  std::filesystem::create_directory(folder.Path("folder.delta"));
  ExpectNotOpened(folder.Path("folder.delta"), absl::StatusCode::kInvalidArgument, "a folder");
  ASSERT_EQ(mkfifo(folder.Path("pipe.delta").c_str(), 0600), 0);
  ExpectNotOpened(folder.Path("pipe.delta"), absl::StatusCode::kInvalidArgument, "no regular file");
}

TEST(DeltaSegment, ANewerVersionAndUnknownFeaturesAreNotDamage) {
  const TemporaryFolder folder;
  std::string bytes = VariedDelta().Bytes();
  Put<uint32_t>(&bytes, 8, 2);
  ExpectNotOpened(folder.Write("version.delta", bytes), absl::StatusCode::kFailedPrecondition, "version 2");
  Put<uint32_t>(&bytes, 8, 1);
  Put<uint64_t>(&bytes, 24, 16);
  RepairDelta(&bytes);
  ExpectNotOpened(folder.Write("feature.delta", bytes), absl::StatusCode::kFailedPrecondition, "0x10");
}

TEST(DeltaSegment, EveryTruncatedFileIsRefused) {
  const TemporaryFolder folder;
  const std::string bytes = VariedDelta().Bytes();
  for (size_t size = 0; size < bytes.size(); size += size < 300 ? 1 : 13) {
    ExpectNotOpened(folder.Write("x.delta", bytes.substr(0, size)), absl::StatusCode::kDataLoss, "bytes");
  }
}

TEST(DeltaSegment, EveryFlippedBitIsRefused) {
  const TemporaryFolder folder;
  const std::string bytes = VariedDelta().Bytes();
  std::mt19937_64 random(1);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << random() % 8);
    EXPECT_FALSE(OpenDelta(folder.Write("x.delta", damaged)).ok()) << "byte " << at;
  }
}

TEST(DeltaSegment, ABlockOfALargeFileIsNamed) {
  const TemporaryFolder folder;
  DeltaFileContent made;
  made.content.variables = {{"kernel", {1000, 1000}, made.Floats(1000000)}};
  std::string bytes = made.Bytes();
  ASSERT_TRUE(OpenDelta(folder.Write("x.delta", bytes)).ok());
  bytes[kDeltaHeaderBytes + 20 * kDeltaBlockBytes] ^= 1;
  ExpectNotOpened(folder.Write("x.delta", bytes), absl::StatusCode::kDataLoss, "block 20 of 62");
}

TEST(DeltaWriter, RefusesContentsThatReadersWouldRefuse) {
  std::string bytes;
  DeltaFileContent made;
  made.AddTable("user", DeltaKeyKind::kInt64, 1).deleted = made.Integers({3, 2});
  absl::Status status = MakeDelta(made.header, made.content, &bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'user'"), std::string::npos) << status;
  made.content.tables[0].deleted = made.Integers({2, 3});
  EXPECT_TRUE(MakeDelta(made.header, made.content, &bytes).ok());
  made.header.term = 0;
  EXPECT_EQ(MakeDelta(made.header, made.content, &bytes).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace processor
