// SPDX-License-Identifier: Apache-2.0
#include "src/tables/tiered_rows.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>

#include "src/tables/embedding_table.h"
#include "src/tables/tiered_fetch.h"
#include "table_file.h"
#include "temporary_folder.h"

namespace processor {
namespace {

constexpr uint32_t kStride = 104;  // so that rows lie in two sectors and in two blocks
constexpr size_t kBlock = 65536;

TableFileContent Content() {
  TableFileContent content;
  content.dim = 26;
  content.row_stride = kStride;
  content.rows = 5000;
  content.absent_key = AbsentKey::kDefaultRows;
  content.default_rows = 3;
  content.index_kind = IndexKind::kInt64;
  for (int64_t i = 0; i < 5000; ++i) content.keys.push_back(i * 7919 - 1000000);
  return content;
}

absl::Status OpenTiered(const std::string& path, double share, std::shared_ptr<const EmbeddingTable>* table) {
  TableStorage storage;
  storage.tiered = true;
  storage.cache_share = share;
  return EmbeddingTable::Open(path, storage, table);
}

class TieredRowsTest : public testing::Test {
 protected:
  void Write(const TableFileContent& content) {
    bytes_ = content.Bytes();
    path_ = folder_.Write("table.emb", bytes_);
    ASSERT_TRUE(EmbeddingTable::Open(path_, &mapped_).ok());
  }

  absl::Status Fetch(const EmbeddingTable& table, const std::vector<uint32_t>& numbers, std::vector<uint8_t>* dst) {
    dst->assign(numbers.size() * table.row_stride(), 0xee);
    TieredFetch fetch;
    fetch.Add(table.tiered(), absl::MakeConstSpan(numbers), table.row_stride(), dst->data());
    return fetch.Finish();
  }

  // Fetches rows and compares them with those of the mapped table.
  void ExpectRows(const EmbeddingTable& table, const std::vector<uint32_t>& numbers) {
    std::vector<uint8_t> found;
    const absl::Status status = Fetch(table, numbers, &found);
    ASSERT_TRUE(status.ok()) << status;
    const size_t bytes = RowBytes(table.row_type(), table.dim());
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] >= table.tiered()->num_rows()) {
        EXPECT_EQ(found[i * table.row_stride()], 0xee) << "not touched";
      } else {
        ASSERT_EQ(std::memcmp(&found[i * table.row_stride()], mapped_->row(numbers[i]), bytes), 0) << numbers[i];
      }
    }
  }

  // Changes a byte of the file itself, as a failing disk does.
  void Damage(uint64_t offset) const { PutByte(offset, static_cast<char>(~bytes_[offset])); }
  void PutByte(uint64_t offset, char byte) const {
    chmod(path_.c_str(), 0600);
    const int file = open(path_.c_str(), O_RDWR);
    ASSERT_EQ(pwrite(file, &byte, 1, static_cast<off_t>(offset)), 1);
    ASSERT_EQ(fsync(file), 0);
    close(file);
  }

  uint64_t row_offset() const { return Get<uint64_t>(bytes_, kSectionFields[0]); }

  const TemporaryFolder folder_;
  std::string bytes_, path_;
  std::shared_ptr<const EmbeddingTable> mapped_;
};

TEST_F(TieredRowsTest, RowsAreThoseOfTheMappedTable) {
  Write(Content());
  for (const double share : {0.0, 0.1, 2.0}) {
    std::shared_ptr<const EmbeddingTable> table;
    ASSERT_TRUE(OpenTiered(path_, share, &table).ok());
    EXPECT_NE(table, mapped_);
    std::mt19937 random(1);
    ExpectRows(*table, {});
    ExpectRows(*table, {5, 5, 0, 5002, kZeroRow, 4999, 5003, 5000, 5});
    for (int round = 0; round < 30; ++round) {
      std::vector<uint32_t> numbers(round < 25 ? 300 : 4000);
      for (uint32_t& number : numbers) number = random() % 5003;
      ExpectRows(*table, numbers);
    }
    const TieredRows::Stats stats = table->tiered()->stats();
    EXPECT_EQ(stats.lookups, 25 * 300 + 5 * 4000 + 7);
    EXPECT_EQ(stats.blocks, stats.checked_blocks) << "all blocks were read";
    EXPECT_FALSE(stats.warming());
    EXPECT_EQ(stats.blocks, (5003 * kStride + kBlock - 1) / kBlock);
    if (share == 2.0) {
      EXPECT_GT(stats.cached_rows, 4700) << "sets have unequal numbers of rows";
      EXPECT_LE(stats.read_bytes, stats.reads * 5 * kBlock);
    }
  }
}

TEST_F(TieredRowsTest, FindsKeysAsTheMappedTable) {
  for (const bool strings : {false, true}) {
    TableFileContent content = Content();
    if (strings) {
      content.index_kind = IndexKind::kString;
      content.keys.clear();
      for (int i = 0; i < 5000; ++i) content.texts.push_back("key " + std::to_string(i));
    }
    Write(content);
    std::shared_ptr<const EmbeddingTable> table;
    ASSERT_TRUE(OpenTiered(path_, 0.1, &table).ok());
    EXPECT_GT(table->index_bytes(), 5000 * 12);
    const auto expect = [&](const auto& keys) {
      std::vector<uint32_t> expected(keys.size()), found(keys.size());
      mapped_->FindRows(absl::MakeConstSpan(keys), expected.data());
      table->FindRows(absl::MakeConstSpan(keys), found.data());
      EXPECT_EQ(found, expected);
    };
    if (strings) {
      expect(std::vector<tensorflow::tstring>{"key 0", "key 4999", "key", "key 77"});
    } else {
      expect(std::vector<int64_t>{-1000000, 7, 7919 * 3 - 1000000, 7919 * 4999 - 1000000});
    }
  }
}

TEST_F(TieredRowsTest, DirectTableAndTableWithoutRows) {
  TableFileContent content;
  content.rows = 4;
  Write(content);
  std::shared_ptr<const EmbeddingTable> table;
  ASSERT_TRUE(OpenTiered(path_, 0.5, &table).ok());
  ExpectRows(*table, {0, 1, 2, 3, kZeroRow});
  content.rows = 0;
  Write(content);
  const absl::Status opened = OpenTiered(path_, 0.5, &table);
  ASSERT_TRUE(opened.ok()) << opened;
  ExpectRows(*table, {kZeroRow});
}

TEST_F(TieredRowsTest, TablesWithEqualCachesAreOne) {
  Write(Content());
  std::shared_ptr<const EmbeddingTable> one, same, other;
  ASSERT_TRUE(OpenTiered(path_, 0.5, &one).ok());
  ASSERT_TRUE(OpenTiered(path_, 0.5, &same).ok());
  ASSERT_TRUE(OpenTiered(path_, 0.25, &other).ok());
  EXPECT_EQ(one, same);
  EXPECT_NE(one, other);
  EXPECT_GT(one->tiered()->stats().cache_bytes, other->tiered()->stats().cache_bytes);
}

TEST_F(TieredRowsTest, BadBlockFailsOnlyThoseWhoNeedIt) {
  Write(Content());
  std::shared_ptr<const EmbeddingTable> table;
  ASSERT_TRUE(OpenTiered(path_, 0.5, &table).ok());
  const uint64_t bad = 3;
  Damage(kTableHeaderBytes + bad * kBlock + 1000);
  const auto row_at = [&](uint64_t offset) { return static_cast<uint32_t>((offset - row_offset()) / kStride); };
  const uint32_t first = row_at(kTableHeaderBytes + bad * kBlock),
                 last = row_at(kTableHeaderBytes + (bad + 1) * kBlock - 1);
  std::vector<uint8_t> found;
  for (const uint32_t row : {first, first + 5, last}) {
    for (int again = 0; again < 2; ++again) {
      const absl::Status status = Fetch(*table, {0, row, 4000}, &found);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_NE(status.message().find("'" + path_ + "': block 3 of"), std::string::npos) << status;
    }
  }
  std::vector<uint32_t> others;
  for (uint32_t row = 0; row < 5003; ++row) {
    if (row < first || row > last) others.push_back(row);
  }
  ExpectRows(*table, others);
  EXPECT_EQ(table->tiered()->stats().bad_blocks, 6);
  EXPECT_TRUE(table->tiered()->stats().warming());
  // A block that was repaired serves.
  PutByte(kTableHeaderBytes + bad * kBlock + 1000, bytes_[kTableHeaderBytes + bad * kBlock + 1000]);
  ExpectRows(*table, {0, first, last});
}

TEST_F(TieredRowsTest, TruncatedFileIsDataLoss) {
  Write(Content());
  std::shared_ptr<const EmbeddingTable> table;
  ASSERT_TRUE(OpenTiered(path_, 0.5, &table).ok());
  mapped_.reset();
  ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(row_offset() + 200000)), 0);
  std::vector<uint8_t> found;
  const absl::Status status = Fetch(*table, {4999}, &found);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_NE(status.message().find("'" + path_ + "': "), std::string::npos) << status;
  EXPECT_TRUE(Fetch(*table, {3}, &found).ok()) << "the rest serves";
}

TEST_F(TieredRowsTest, DamageOutsideOfRowsIsRefusedWhenItIsOpened) {
  Write(Content());
  mapped_.reset();
  const auto refuses = [&](uint64_t offset, const std::string& text) {
    std::string damaged = bytes_;
    damaged[offset] = static_cast<char>(~damaged[offset]);
    std::shared_ptr<const EmbeddingTable> table;
    const std::string path = folder_.Write("damaged.emb", damaged);
    const absl::Status status = OpenTiered(path, 0.5, &table);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << offset << ": " << status;
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
    EXPECT_NE(status.message().find(path), std::string::npos) << status;
  };
  const uint64_t index = Get<uint64_t>(bytes_, kSectionFields[1]);
  const uint64_t index_size = Get<uint64_t>(bytes_, kSectionFields[1] + 8);
  refuses(index, "block");
  refuses(index + index_size / 2, "block");
  refuses(index + index_size - 1, "block");
  refuses(Get<uint64_t>(bytes_, kChecksumsField), "checksums");
  refuses(20, "");
}

TEST_F(TieredRowsTest, Version1IsRefused) {
  TableFileContent content = Content();
  content.version = 1;
  Write(content);
  std::shared_ptr<const EmbeddingTable> table;
  const absl::Status status = OpenTiered(path_, 0.5, &table);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("version 1"), std::string::npos) << status;
}

TEST_F(TieredRowsTest, ThreadsFetchAtATime) {
  Write(Content());
  std::shared_ptr<const EmbeddingTable> table;
  ASSERT_TRUE(OpenTiered(path_, 0.1, &table).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int round = 0; round < 20; ++round) {
        std::vector<uint32_t> numbers(200);
        for (uint32_t& number : numbers) number = random() % 5003;
        ExpectRows(*table, numbers);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace processor
