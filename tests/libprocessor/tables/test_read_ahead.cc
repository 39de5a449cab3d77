// SPDX-License-Identifier: Apache-2.0
#include "src/tables/read_ahead.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "temporary_folder.h"

namespace processor {
namespace {

constexpr uint64_t kStretch = ReadAhead::kStretchBytes;

class ReadAheadTest : public testing::Test {
 protected:
  ReadAheadTest() {
    std::mt19937_64 random(3);
    content_.resize(3 * kStretch + 1234567);
    for (size_t at = 0; at + 8 <= content_.size(); at += 8) {
      const uint64_t word = random();
      content_.replace(at, 8, reinterpret_cast<const char*>(&word), 8);
    }
    path_ = folder_.Write("table", content_);
    file_ = std::make_unique<TableFile>(path_);
    EXPECT_TRUE(file_->Open().ok());
    EXPECT_TRUE(DirectFile::Open(*file_, &direct_).ok());
  }

  // Reads all parts and compares them with the file.
  void ExpectContent(const std::vector<FilePart>& parts, uint64_t most) {
    ReadAhead ahead(*file_, *direct_, parts);
    for (const FilePart& part : parts) {
      for (uint64_t at = part.begin; at < part.end;) {
        absl::Span<const uint8_t> bytes;
        const absl::Status status = ahead.Next(at, most, &bytes);
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_GT(bytes.size(), 0u);
        ASSERT_LE(bytes.size(), most);
        ASSERT_LE(at + bytes.size(), part.end);
        ASSERT_EQ(content_.compare(at, bytes.size(), reinterpret_cast<const char*>(bytes.data()), bytes.size()), 0);
        at += bytes.size();
        EXPECT_TRUE(at == part.end || bytes.size() == most || at % kStretch == 0) << at;
      }
    }
    absl::Span<const uint8_t> bytes;
    EXPECT_EQ(ahead.Next(content_.size(), 1, &bytes).code(), absl::StatusCode::kInternal) << "nothing is left";
  }

  const TemporaryFolder folder_;
  std::string content_, path_;
  std::unique_ptr<TableFile> file_;
  std::unique_ptr<const DirectFile> direct_;
};

TEST_F(ReadAheadTest, ReadsPartsInOrder) {
  const uint64_t end = content_.size();
  ExpectContent({{0, end}}, uint64_t{1} << 20);
  ExpectContent({{256, end}}, end);
  ExpectContent({{256, 65792}, {2 * kStretch + 77, end - 5}}, 10007);
  ExpectContent({{5, 6}, {7, 8}, {kStretch - 1, kStretch + 1}, {end - 1, end}}, 100);
  ExpectContent({}, 100);
}

TEST_F(ReadAheadTest, MayBeLeftWhileItReads) {
  for (int i = 0; i < 20; ++i) {
    ReadAhead ahead(*file_, *direct_, {{0, content_.size()}});
    absl::Span<const uint8_t> bytes;
    if (i % 2 == 0) {
      EXPECT_TRUE(ahead.Next(0, 1, &bytes).ok());
    }
  }
}

TEST_F(ReadAheadTest, FileThatBecameShorterIsDataLoss) {
  ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(kStretch + 100)), 0);
  ReadAhead ahead(*file_, *direct_, {{256, content_.size()}});
  absl::Span<const uint8_t> bytes;
  EXPECT_TRUE(ahead.Next(256, kStretch, &bytes).ok());
  const absl::Status status = ahead.Next(kStretch, kStretch, &bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_NE(status.message().find("'" + path_ + "': ends at " + std::to_string(kStretch + 100)), std::string::npos)
      << status;
}

}  // namespace
}  // namespace processor
