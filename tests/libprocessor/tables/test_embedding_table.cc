// SPDX-License-Identifier: Apache-2.0
#include "src/tables/embedding_table.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>

#include "table_file.h"
#include "temporary_folder.h"

namespace processor {
namespace {

TableFileContent Strings() {
  TableFileContent content;
  content.index_kind = IndexKind::kString;
  for (int i = 0; i < 30; ++i) content.texts.push_back("text " + std::to_string(i));
  return content;
}

absl::Status Open(const std::string& path) {
  std::shared_ptr<const EmbeddingTable> table;
  return EmbeddingTable::Open(path, &table);
}

bool IsMapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(path) != std::string::npos) return true;
  }
  return false;
}

void ExpectError(const std::string& path, absl::StatusCode code, const std::string& text) {
  const absl::Status status = Open(path);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(status.message().find("'" + path + "'"), std::string::npos) << status;
  EXPECT_NE(status.message().find(text), std::string::npos) << status;
  EXPECT_NE(status.message().find(';'), std::string::npos) << "what to do: " << status;
}

TEST(EmbeddingTable, DescribesContentOfFile) {
  const TemporaryFolder folder;
  TableFileContent content;
  content.row_type = RowType::kInt4;
  content.dim = 5;
  content.rows = 3;
  content.row_stride = 16;
  content.absent_key = AbsentKey::kDefaultRows;
  content.default_rows = 1;
  const std::string path = folder.Write("table.emb", content.Bytes());
  std::shared_ptr<const EmbeddingTable> table;
  const absl::Status status = EmbeddingTable::Open(path, &table);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(table->path(), path);
  EXPECT_EQ(table->rows(), 3);
  EXPECT_EQ(table->default_rows(), 1);
  EXPECT_EQ(table->dim(), 5);
  EXPECT_EQ(table->row_type(), RowType::kInt4);
  EXPECT_EQ(table->row_stride(), 16);
  EXPECT_EQ(table->index_kind(), IndexKind::kDirect);
  EXPECT_EQ(table->absent_key(), AbsentKey::kDefaultRows);
  for (uint32_t row = 0; row < 4; ++row) EXPECT_EQ(table->row(row)[6], 16 * row + 6);
}

TEST(EmbeddingTable, ErrorsNamePathsThatAreNotFiles) {
  const TemporaryFolder folder;
  ExpectError(folder.Path("missing.emb"), absl::StatusCode::kNotFound, "no such file");
  ExpectError(folder.Path("missing/table.emb"), absl::StatusCode::kNotFound, "no such file");
  std::filesystem::create_directory(folder.Path("folder.emb"));
  ExpectError(folder.Path("folder.emb"), absl::StatusCode::kInvalidArgument, "a folder");
  ASSERT_EQ(mkfifo(folder.Path("pipe.emb").c_str(), 0600), 0);
  ExpectError(folder.Path("pipe.emb"), absl::StatusCode::kInvalidArgument, "no regular file");
  ExpectError(folder.Write("empty.emb", ""), absl::StatusCode::kDataLoss, "0 bytes, expected a header");
  ExpectError(folder.Write("text.emb", std::string(1000, 'x')), absl::StatusCode::kDataLoss, "magic");
}

TEST(EmbeddingTable, ErrorsNameUnreadableFiles) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("table.emb", Strings().Bytes());
  chmod(path.c_str(), 0);
  const bool root = geteuid() == 0;
  constexpr uid_t kNobody = 65534;
  chmod(folder.Path("").c_str(), 0755);
  if (root) {  // to whom permissions mean nothing
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  const absl::Status status = Open(path);
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_NE(status.message().find(path), std::string::npos);
}

TEST(EmbeddingTable, ANewerVersionIsRefused) {
  const TemporaryFolder folder;
  std::string bytes = Strings().Bytes();
  Put<uint32_t>(&bytes, 8, 3);
  RepairChecksums(&bytes);
  ExpectError(folder.Write("table.emb", bytes), absl::StatusCode::kFailedPrecondition, "update recprocessor");
}

TEST(EmbeddingTable, FilesOfVersionOneAreReadAsTheyWere) {
  const std::string folder = PROCESSOR_GOLDEN "/table/";
  std::shared_ptr<const EmbeddingTable> integers, strings;
  const absl::Status status = EmbeddingTable::Open(folder + "version_1_int64.emb", &integers);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(EmbeddingTable::Open(folder + "version_1_string.emb", &strings).ok());
  std::vector<int64_t> keys = {-101};
  std::vector<tensorflow::tstring> texts = {"key"};
  for (int i = 0; i < 40; ++i) {
    keys.push_back(37 * i - 100);
    texts.emplace_back("key " + std::to_string(i));
  }
  std::vector<uint32_t> rows(41), text_rows(41);
  integers->FindRows(keys, rows.data());
  strings->FindRows(texts, text_rows.data());
  EXPECT_EQ(rows[0], 41) << "-101 mod 2, behind 40 rows";
  EXPECT_EQ(text_rows[0], kZeroRow);
  for (uint32_t i = 0; i < 40; ++i) {
    EXPECT_EQ(rows[i + 1], i);
    EXPECT_EQ(text_rows[i + 1], i);
    EXPECT_EQ(reinterpret_cast<const float*>(integers->row(i))[3], static_cast<float>(i) + 0.375f);
  }
}

void ExpectTruncationsRefused(const TemporaryFolder& folder, const std::string& good) {
  std::vector<size_t> sizes = {1, 7, 8, 255, 256, 257, 4095, 4096, good.size() - 1};
  for (size_t field : kSectionFields) {
    const size_t begin = Get<uint64_t>(good, field), end = begin + Get<uint64_t>(good, field + 8);
    for (size_t size : {begin, begin + 1, end - 1}) sizes.push_back(size);
  }
  std::mt19937_64 random(3);
  for (int i = 0; i < 50; ++i) sizes.push_back(random() % good.size());
  for (size_t size : sizes)
    ExpectError(folder.Write("t.emb", good.substr(0, size)), absl::StatusCode::kDataLoss, "bytes");
  ExpectError(folder.Write("t.emb", good + "x"), absl::StatusCode::kDataLoss, "bytes, expected");
}

TEST(EmbeddingTable, ATruncatedFileIsRefused) {
  const TemporaryFolder folder;
  TableFileContent content = Strings();
  for (content.version = 1; content.version <= 2; ++content.version) ExpectTruncationsRefused(folder, content.Bytes());
}

void ExpectAlteredBytesDetected(const TemporaryFolder& folder, const std::string& good) {
  for (size_t at = 0; at < good.size(); at += at < 256 || at > 4000 ? 1 : 97) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    const absl::Status status = Open(folder.Write("table.emb", bytes));
    const bool version = at >= 8 && at < 12;
    ASSERT_EQ(status.code(), version ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kDataLoss) << at;
  }
}

// The checksums know every byte of the file.
TEST(EmbeddingTable, DetectsEveryAlteredByte) {
  const TemporaryFolder folder;
  TableFileContent content = Strings();
  content.dim = 1;
  for (content.version = 1; content.version <= 2; ++content.version) {
    ExpectAlteredBytesDetected(folder, content.Bytes());
  }
}

TEST(EmbeddingTable, ADamagedBlockIsNamed) {
  const TemporaryFolder folder;
  TableFileContent content;
  content.dim = 16;
  content.rows = 4000;
  std::string bytes = content.Bytes();
  ASSERT_TRUE(Open(folder.Write("table.emb", bytes)).ok());
  bytes[kTableHeaderBytes + 3 * kTableBlockBytes] ^= 1;
  ExpectError(folder.Write("table.emb", bytes), absl::StatusCode::kDataLoss, "block 3 of 4: wrong checksum");
}

struct WrongContent {
  const char* what;
  std::function<void(std::string* bytes, size_t index, size_t offsets)> make;
  const char* message;
};

// Content that a writer got wrong: the checksums are right, and a reader that believes it reads outside of the file.
const WrongContent kWrongContents[] = {
    {"row", [](std::string* b, size_t index, size_t) { Put<uint32_t>(b, index + 40, 30); }, "leads to row 30"},
    {"count", [](std::string* b, size_t index, size_t) { Put<uint32_t>(b, index + 60, 6); }, "with 6 keys"},
    {"home", [](std::string* b, size_t index, size_t) { Put<uint64_t>(b, index, ~Get<uint64_t>(*b, index)); },
     "expected a bucket from"},
    {"order", [](std::string* b, size_t, size_t offsets) { Put<uint64_t>(b, offsets + 8, 1000); }, "key_offsets"},
    {"end", [](std::string* b, size_t, size_t offsets) { Put<uint64_t>(b, offsets + 30 * 8, 1 << 20); }, "key_offsets"},
};

TEST(EmbeddingTable, ErrorsNameWrongContent) {
  const TemporaryFolder folder;
  const std::string good = Strings().Bytes();
  for (const WrongContent& wrong : kWrongContents) {
    std::string bytes = good;
    size_t bucket = Get<uint64_t>(bytes, 104);
    while (Get<uint32_t>(bytes, bucket + 60) == 0) bucket += 64;
    wrong.make(&bytes, bucket, Get<uint64_t>(bytes, 128));
    RepairChecksums(&bytes);
    SCOPED_TRACE(wrong.what);
    ExpectError(folder.Write("table.emb", bytes), absl::StatusCode::kDataLoss, wrong.message);
  }
}

TEST(EmbeddingTable, AFullLastBucketIsRefused) {
  TableFileContent content;
  content.version = 1;  // in which the index is at the end
  content.index_kind = IndexKind::kInt64;
  content.keys = {1, 2, 3, 4, 5};
  content.home_buckets = 1;
  std::string bytes = content.Bytes();
  const TemporaryFolder folder;
  EXPECT_TRUE(Open(folder.Write("table.emb", bytes)).ok());
  bytes.resize(bytes.size() - 64);  // the bucket that ends every search
  Put<uint64_t>(&bytes, 16, bytes.size());
  Put<uint64_t>(&bytes, 72, 1);
  Put<uint64_t>(&bytes, 112, 64);
  RepairChecksums(&bytes);
  ExpectError(folder.Write("table.emb", bytes), absl::StatusCode::kDataLoss, "with 5 keys, expected at most 4");
}

TEST(EmbeddingTable, MapsAFileOnceAndUnmapsItWithItsLastUser) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("table.emb", Strings().Bytes());
  std::filesystem::create_hard_link(path, folder.Path("link.emb"));
  std::vector<std::shared_ptr<const EmbeddingTable>> tables(8);
  std::vector<std::thread> threads;
  for (auto& table : tables) {
    threads.emplace_back([&] { ASSERT_TRUE(EmbeddingTable::Open(path, &table).ok()); });
  }
  for (std::thread& thread : threads) thread.join();
  std::shared_ptr<const EmbeddingTable> linked;
  ASSERT_TRUE(EmbeddingTable::Open(folder.Path("link.emb"), &linked).ok());
  for (const auto& table : tables) EXPECT_EQ(table, linked);
  EXPECT_TRUE(IsMapped(path));
  tables.clear();
  EXPECT_TRUE(IsMapped(path));
  linked = nullptr;
  EXPECT_FALSE(IsMapped(path));
}

TEST(EmbeddingTable, AReplacedFileIsAnotherTable) {
  const TemporaryFolder folder;
  TableFileContent content = Strings();
  const std::string path = folder.Write("table.emb", content.Bytes());
  std::shared_ptr<const EmbeddingTable> before, after;
  ASSERT_TRUE(EmbeddingTable::Open(path, &before).ok());
  content.texts.pop_back();
  folder.Write("table.emb", content.Bytes());
  ASSERT_TRUE(EmbeddingTable::Open(path, &after).ok());
  EXPECT_NE(before, after);
  EXPECT_EQ(before->rows(), 30);
  EXPECT_EQ(after->rows(), 29);
}

TEST(EmbeddingTable, EqualFilesOfOneHashAreMappedOnce) {
  const TemporaryFolder here, there;
  const std::string name = std::string(60, 'a') + "0123.emb", bytes = Strings().Bytes();
  std::shared_ptr<const EmbeddingTable> first, copy, unnamed, again;
  ASSERT_TRUE(EmbeddingTable::Open(here.Write(name, bytes), &first).ok());
  ASSERT_TRUE(EmbeddingTable::Open(there.Write(name, bytes), &copy).ok());
  EXPECT_EQ(first, copy);
  EXPECT_FALSE(IsMapped(there.Path(name)));
  ASSERT_TRUE(EmbeddingTable::Open(there.Path(name), &again).ok());
  EXPECT_EQ(first, again);
  ASSERT_TRUE(EmbeddingTable::Open(there.Write("other.emb", bytes), &unnamed).ok());
  EXPECT_NE(first, unnamed) << "no hash that vouches for it";

  // A copy is checked although it is not needed: its damage would come out when the process starts again.
  std::string damaged = bytes;
  damaged[4096] = static_cast<char>(damaged[4096] ^ 1);
  ExpectError(there.Write(name, damaged), absl::StatusCode::kDataLoss, "block 0 of 1: wrong checksum");
  // And a name is no proof.
  TableFileContent content = Strings();
  content.texts.pop_back();
  std::shared_ptr<const EmbeddingTable> misnamed;
  ASSERT_TRUE(EmbeddingTable::Open(there.Write(name, content.Bytes()), &misnamed).ok());
  EXPECT_EQ(misnamed->rows(), 29);
}

}  // namespace
}  // namespace processor
