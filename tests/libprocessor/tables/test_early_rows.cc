// SPDX-License-Identifier: Apache-2.0
#include "src/tables/early_rows.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <random>

#include "src/base/byte_budget.h"
#include "src/tables/embedding_table.h"
#include "src/tables/tiered_fetch.h"
#include "table_file.h"
#include "temporary_folder.h"

namespace processor {
namespace {

constexpr uint32_t kRowStride = 104;  // so that rows lie in two sectors and in two blocks
constexpr uint32_t kRowsOfFile = 5000;

class EarlyRowsTest : public testing::Test {
 protected:
  void SetUp() override {
    TableFileContent content;
    content.dim = 26;
    content.row_stride = kRowStride;
    content.rows = kRowsOfFile;
    bytes_ = content.Bytes();
    path_ = folder_.Write("table.emb", bytes_);
    ASSERT_TRUE(EmbeddingTable::Open(path_, &mapped_).ok());
    TableStorage storage;
    storage.tiered = true;
    storage.cache_share = 0.05;
    ASSERT_TRUE(EmbeddingTable::Open(path_, storage, &table_).ok());
  }

  // Returns rows that have been read; null if there is nothing to read.
  std::shared_ptr<EarlyRows> Read(const std::vector<uint32_t>& numbers) const {
    auto rows = std::make_shared<EarlyRows>(table_);
    rows->Want(table_->tiered(), numbers);
    if (!rows->Prepare()) return nullptr;
    std::promise<void> ended;
    EarlyRows::Start(rows, [&] { ended.set_value(); });
    ended.get_future().wait();
    rows->Take();
    return rows;
  }

  absl::Status Fetch(const std::vector<uint32_t>& numbers, EarlyRowsList early, std::vector<uint8_t>* dst) const {
    dst->assign(numbers.size() * kRowStride, 0);
    TieredFetch fetch;
    fetch.Add(table_->tiered(), numbers, kRowStride, dst->data());
    return fetch.Finish(early);
  }

  void ExpectFetched(const std::vector<uint32_t>& numbers, EarlyRowsList early) const {
    std::vector<uint8_t> found;
    const absl::Status status = Fetch(numbers, early, &found);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_EQ(std::memcmp(&found[i * kRowStride], mapped_->row(numbers[i]), 26 * sizeof(float)), 0) << numbers[i];
    }
  }

  uint64_t reads() const { return table_->tiered()->stats().reads; }

  const TemporaryFolder folder_;
  std::string bytes_, path_;
  std::shared_ptr<const EmbeddingTable> mapped_, table_;
};

std::vector<uint32_t> SomeRows(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  std::vector<uint32_t> numbers(count);
  for (uint32_t& number : numbers) number = random() % kRowsOfFile;
  return numbers;
}

TEST_F(EarlyRowsTest, RowsThatWereReadAreNotReadAgain) {
  for (uint32_t round = 0; round < 20; ++round) {
    const std::vector<uint32_t> numbers = SomeRows(round, 400);
    const std::shared_ptr<EarlyRows> early = Read(numbers);
    ASSERT_NE(early, nullptr);
    const uint64_t before = reads();
    ExpectFetched(numbers, {early.get()});
    EXPECT_EQ(reads(), before);
  }
  const TieredRows::Stats stats = table_->tiered()->stats();
  EXPECT_EQ(stats.lookups, 20 * 400) << "each row counts once";
  EXPECT_GT(stats.hits, 0);
  EXPECT_GT(stats.cached_rows, 100) << "rows that were read early are offered to the cache";
}

TEST_F(EarlyRowsTest, OtherRowsAreReadWhenTheyAreNeeded) {
  const std::shared_ptr<EarlyRows> one = Read(SomeRows(1, 100)), two = Read(SomeRows(2, 100));
  std::vector<uint32_t> numbers = SomeRows(1, 100);
  for (const uint32_t seed : {2, 3}) {
    const std::vector<uint32_t> more = SomeRows(seed, 100);
    numbers.insert(numbers.end(), more.begin(), more.end());
  }
  const EarlyRows* const early[] = {one.get(), two.get()};
  const uint64_t before = reads();
  ExpectFetched(numbers, early);
  EXPECT_GT(reads(), before);
}

TEST_F(EarlyRowsTest, NothingIsReadForRowsInMemory) {
  std::vector<uint8_t> unused;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Fetch({7, 8}, {}, &unused).ok());
  EXPECT_EQ(Read({7, 8}), nullptr);
  EXPECT_EQ(Read({kZeroRow, kRefusedRow, kRowsOfFile}), nullptr) << "not rows of the file";
  EXPECT_NE(Read({7, 9}), nullptr);
}

TEST_F(EarlyRowsTest, ADamagedBlockFailsWhatNeedsItAndNothingElse) {
  chmod(path_.c_str(), 0600);
  const int file = open(path_.c_str(), O_RDWR);
  const off_t place = static_cast<off_t>(Get<uint64_t>(bytes_, kSectionFields[0]) + 1000 * kRowStride);
  const char wrong = static_cast<char>(~bytes_[place]);
  ASSERT_EQ(pwrite(file, &wrong, 1, place), 1);
  ASSERT_EQ(fsync(file), 0);
  close(file);
  const std::shared_ptr<EarlyRows> early = Read({3, 1000, 4000});
  ASSERT_NE(early, nullptr);
  EXPECT_EQ(early->Find(table_->tiered(), 1000), nullptr);
  EXPECT_NE(early->Find(table_->tiered(), 4000), nullptr);
  ExpectFetched({3, 4000}, {early.get()});
  std::vector<uint8_t> unused;
  const absl::Status status = Fetch({3, 1000}, {early.get()}, &unused);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("wrong checksum"), std::string::npos);
}

TEST_F(EarlyRowsTest, RequestsThatFindNoMemoryReadLater) {
  const int64_t before = EarlyRows::BytesOfAll(), claimed = ByteBudget::Requests().in_use();
  std::vector<std::shared_ptr<EarlyRows>> all;
  for (;;) {
    // Each block has to be checked, so a row takes 64 KiB.
    auto rows = std::make_shared<EarlyRows>(table_);
    rows->Want(table_->tiered(), {0, 1000, 2000, 3000, 4000});
    if (!rows->Prepare()) break;
    all.push_back(std::move(rows));
    ASSERT_LE(EarlyRows::BytesOfAll(), EarlyRows::kMostBytes);
  }
  EXPECT_GT(all.size(), 100);
  EXPECT_GT(ByteBudget::Requests().in_use(), claimed);
  ExpectFetched({0, 1000, 2000}, {});
  all.clear();
  EXPECT_EQ(EarlyRows::BytesOfAll(), before);
  EXPECT_EQ(ByteBudget::Requests().in_use(), claimed);
}

TEST_F(EarlyRowsTest, ARowThatARequestNeedsManyTimesTakesLittleMemory) {
  const int64_t before = EarlyRows::BytesOfAll();
  const auto rows = std::make_shared<EarlyRows>(table_);
  for (int i = 0; i < 10; ++i) rows->Want(table_->tiered(), std::vector<uint32_t>(100000, 9));
  ASSERT_TRUE(rows->Prepare());
  EXPECT_EQ(rows->pieces.size(), 1);
  EXPECT_LT(EarlyRows::BytesOfAll() - before, 3 << 16) << "a block, and what a request takes";
}

TEST_F(EarlyRowsTest, ScopesOfAThreadLieInEachOther) {
  const auto one = std::make_shared<EarlyRows>(table_);
  const EarlyRows* const list[] = {one.get()};
  EXPECT_TRUE(EarlyRowsScope::Current().empty());
  {
    const EarlyRowsScope scope(list);
    EXPECT_EQ(EarlyRowsScope::Current().size(), 1);
    {
      const EarlyRowsScope inner(EarlyRowsList{});
      EXPECT_TRUE(EarlyRowsScope::Current().empty());
    }
    EXPECT_EQ(EarlyRowsScope::Current().front(), one.get());
  }
  EXPECT_TRUE(EarlyRowsScope::Current().empty());
}

}  // namespace
}  // namespace processor
