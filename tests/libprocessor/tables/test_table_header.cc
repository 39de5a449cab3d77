// SPDX-License-Identifier: Apache-2.0
#include "src/tables/table_header.h"

#include <gtest/gtest.h>

#include <functional>

#include "table_file.h"

namespace processor {
namespace {

absl::Status ParseHeader(const std::string& bytes, TableHeader* header) {
  return ParseTableHeader(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), header);
}

TableFileContent FourTexts() {
  TableFileContent content;
  content.index_kind = IndexKind::kString;
  content.texts = {"a", "bc", "", "def"};
  content.absent_key = AbsentKey::kDefaultRows;
  content.default_rows = 2;
  return content;
}

TEST(TableHeader, ReadsAllFields) {
  for (uint32_t type = 0; type <= 4; ++type) {
    for (uint32_t dim : {1, 2, 3, 16, 37}) {
      TableFileContent content = FourTexts();
      content.row_type = static_cast<RowType>(type);
      content.dim = dim;
      const std::string bytes = content.Bytes();
      TableHeader header;
      const absl::Status status = ParseHeader(bytes, &header);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(header.row_type, content.row_type);
      EXPECT_EQ(header.dim, dim);
      EXPECT_EQ(header.row_stride, content.Stride());
      EXPECT_EQ(header.rows, 4);
      EXPECT_EQ(header.default_rows, 2);
      EXPECT_EQ(header.index_kind, IndexKind::kString);
      EXPECT_EQ(header.absent_key, AbsentKey::kDefaultRows);
      EXPECT_EQ(header.home_buckets, 2);
      EXPECT_EQ(header.file_size, bytes.size());
      EXPECT_EQ(header.row_data.size, 6 * content.Stride());
      EXPECT_EQ(header.index.size, 64 * header.buckets);
      EXPECT_EQ(header.key_offsets.size, 40);
      EXPECT_EQ(header.key_bytes.size, 6);
    }
  }
}

TEST(TableHeader, DetectsEveryAlteredByte) {
  for (uint32_t version : {1, 2}) {
    TableFileContent content = FourTexts();
    content.version = version;
    const std::string good = content.Bytes();
    for (size_t i = 0; i < 8 * kTableHeaderBytes; ++i) {
      std::string bytes = good;
      bytes[i / 8] = static_cast<char>(bytes[i / 8] ^ (1 << i % 8));
      TableHeader header;
      EXPECT_FALSE(ParseHeader(bytes, &header).ok()) << "version " << version << " byte " << i / 8;
    }
  }
}

struct WrongHeader {
  const char* what;
  std::function<void(std::string*)> make;
  const char* message;
};

// Headers that a writer got wrong: their checksum is right.
const WrongHeader kWrongHeaders[] = {
    {"header size", [](std::string* b) { Put<uint32_t>(b, 12, 512); }, "header_size 512"},
    {"file size", [](std::string* b) { Put<uint64_t>(b, 16, 99); }, "bytes, expected 99"},
    {"many rows", [](std::string* b) { Put<uint64_t>(b, 24, (uint64_t{1} << 32) - 18); }, "less than 4294967280"},
    {"rows that wrap", [](std::string* b) { Put<uint64_t>(b, 24, ~uint64_t{0}); }, "less than 4294967280"},
    {"other rows", [](std::string* b) { Put<uint64_t>(b, 24, 3); }, "row_data: 96 bytes, expected 80"},
    {"no default rows", [](std::string* b) { Put<uint64_t>(b, 32, 0); }, "0 default rows, expected some"},
    {"default rows", [](std::string* b) { Put<uint32_t>(b, 56, 0); }, "2 default rows, expected 0"},
    {"dim", [](std::string* b) { Put<uint32_t>(b, 40, 0); }, "dim 0"},
    {"large dim", [](std::string* b) { Put<uint32_t>(b, 40, ~0u); }, "not below the 17179869180 bytes of a row"},
    {"row type", [](std::string* b) { Put<uint32_t>(b, 44, 5); }, "row_type 5"},
    {"stride", [](std::string* b) { Put<uint32_t>(b, 48, 12); }, "row_stride 12"},
    {"odd stride", [](std::string* b) { Put<uint32_t>(b, 48, 18); }, "a multiple of 4"},
    {"index kind", [](std::string* b) { Put<uint32_t>(b, 52, 3); }, "index_kind 3"},
    {"absent key", [](std::string* b) { Put<uint32_t>(b, 56, 3); }, "absent_key 3"},
    {"reserved", [](std::string* b) { Put<uint32_t>(b, 60, 1); }, "reserved"},
    {"reserved in a section", [](std::string* b) { Put<uint32_t>(b, 100, 1); }, "reserved"},
    {"reserved at the end", [](std::string* b) { Put<uint8_t>(b, 251, 1); }, "reserved"},
    {"no home buckets", [](std::string* b) { Put<uint64_t>(b, 64, 0); }, "0 home buckets"},
    {"home buckets", [](std::string* b) { Put<uint64_t>(b, 64, 3); }, "3 home buckets of 2"},
    {"buckets", [](std::string* b) { Put<uint64_t>(b, 72, 3); }, "index: 128 bytes, expected 192"},
    {"buckets that wrap", [](std::string* b) { Put<uint64_t>(b, 72, (uint64_t{1} << 58) + 2); }, "what fits into"},
    {"row offset", [](std::string* b) { Put<uint64_t>(b, 80, 2048); }, "row_data: offset 2048"},
    {"rows in the header", [](std::string* b) { Put<uint64_t>(b, 80, 0); }, "between the header and the end"},
    {"rows behind the end", [](std::string* b) { Put<uint64_t>(b, 80, 1 << 20); }, "between the header and the end"},
    {"offset that wraps", [](std::string* b) { Put<uint64_t>(b, 80, ~uint64_t{4095}); }, "between the header"},
    {"index offset", [](std::string* b) { Put<uint64_t>(b, 104, Get<uint64_t>(*b, 104) + 8); }, "multiple of 64"},
    {"overlap", [](std::string* b) { Put<uint64_t>(b, 104, 4096); }, "overlaps"},
    {"offsets", [](std::string* b) { Put<uint64_t>(b, 136, 32); }, "key_offsets: 32 bytes, expected 40"},
    {"key bytes", [](std::string* b) { Put<uint64_t>(b, 160, 1 << 20); }, "key_bytes"},
    {"direct", [](std::string* b) { Put<uint32_t>(b, 52, 0); }, "without index"},
    {"section checksum", [](std::string* b) { Put<uint32_t>(b, 96, 1); }, "reserved"},
    {"block size", [](std::string* b) { Put<uint32_t>(b, 216, 4096); }, "block_size 4096"},
    {"few checksums", [](std::string* b) { Put<uint64_t>(b, 200, 0); }, "checksums: 0 bytes"},
    {"place of checksums", [](std::string* b) { Put<uint64_t>(b, 192, Get<uint64_t>(*b, 192) - 64); }, "checksums: 4"},
    {"integer keys", [](std::string* b) { Put<uint32_t>(b, 52, 1); }, "key_offsets: 40 bytes, expected 0"},
};

TEST(TableHeader, ErrorsNameWrongFields) {
  const std::string good = FourTexts().Bytes();
  for (const WrongHeader& wrong : kWrongHeaders) {
    std::string bytes = good;
    wrong.make(&bytes);
    RepairChecksums(&bytes);
    TableHeader header;
    const absl::Status status = ParseHeader(bytes, &header);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << wrong.what << ": " << status;
    EXPECT_NE(status.message().find(wrong.message), std::string::npos) << wrong.what << ": " << status;
  }
}

TEST(TableHeader, EmptySectionMustHaveNoOffset) {
  TableFileContent content;
  content.rows = 0;
  std::string bytes = content.Bytes();
  TableHeader header;
  EXPECT_TRUE(ParseHeader(bytes, &header).ok());
  Put<uint64_t>(&bytes, 80, 4096);
  RepairChecksums(&bytes);
  EXPECT_EQ(ParseHeader(bytes, &header).code(), absl::StatusCode::kDataLoss);
}

TEST(TableHeader, UnknownFeaturesAreRefusedOnlyIfTheyMustBeKnown) {
  std::string bytes = FourTexts().Bytes();
  TableHeader header;
  Put<uint64_t>(&bytes, 184, 6);
  RepairChecksums(&bytes);
  EXPECT_TRUE(ParseHeader(bytes, &header).ok());
  Put<uint64_t>(&bytes, 176, 16);
  RepairChecksums(&bytes);
  const absl::Status status = ParseHeader(bytes, &header);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("incompatible features 0x10"), std::string::npos) << status;
}

TEST(TableHeader, ErrorsNameNewerVersion) {
  std::string bytes = FourTexts().Bytes();
  Put<uint32_t>(&bytes, 8, 3);  // its checksum may be another one, too
  TableHeader header;
  const absl::Status status = ParseHeader(bytes, &header);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("version 3 of the format, expected at most 2"), std::string::npos) << status;
}

TEST(TableHeader, WidthsOfNarrowRowsAreChecked) {
  TableFileContent content;
  content.dim = 8;
  content.rows = 20;
  const std::string wide = content.Bytes();
  // Rows 0-3 have 8 elements, 4-9 have 3 and the others 1: 128, then 6 x 12 in 128 bytes, then 10 x 4.
  const auto parse = [&](uint64_t features, std::vector<uint32_t> widths, uint64_t row_bytes) {
    std::string bytes = wide;
    Put<uint64_t>(&bytes, 176, features);
    for (size_t i = 0; i < widths.size(); ++i) Put<uint32_t>(&bytes, 220 + 4 * i, widths[i]);
    Put<uint64_t>(&bytes, 88, row_bytes);
    // The rows are the only section, so the checksums move.
    const uint64_t end = (4096 + row_bytes + 63) / 64 * 64;
    bytes.resize(end + 4);
    Put<uint64_t>(&bytes, 16, bytes.size());
    Put<uint64_t>(&bytes, kChecksumsField, end);
    RepairChecksums(&bytes);
    TableHeader header;
    return ParseHeader(bytes, &header);
  };
  constexpr uint64_t kBytes = 256 + 40;
  EXPECT_TRUE(parse(0, {}, 640).ok());
  EXPECT_TRUE(parse(1, {4, 3, 10, 1}, kBytes).ok()) << parse(1, {4, 3, 10, 1}, kBytes);
  const auto refused = [&](uint64_t features, std::vector<uint32_t> widths, uint64_t row_bytes) {
    const absl::Status status = parse(features, std::move(widths), row_bytes);
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  };
  EXPECT_NE(refused(3, {4, 3, 10, 1}, kBytes).find("incompatible features 0x3"), std::string::npos);
  EXPECT_NE(refused(1, {}, 640).find("no widths"), std::string::npos);
  EXPECT_NE(refused(0, {4, 3}, 640).find("reserved"), std::string::npos);
  EXPECT_NE(refused(1, {4, 3, 4, 1}, kBytes).find("width 1 from row 4"), std::string::npos);
  EXPECT_NE(refused(1, {4, 3, 10, 3}, kBytes).find("width 3 from row 10"), std::string::npos);
  EXPECT_NE(refused(1, {4, 8}, kBytes).find("width 8"), std::string::npos);
  EXPECT_NE(refused(1, {20, 3}, kBytes).find("from row 20 of 20"), std::string::npos);
  EXPECT_NE(refused(1, {4, 3, 10, 1}, 640).find("row_data"), std::string::npos);
}

}  // namespace
}  // namespace processor
