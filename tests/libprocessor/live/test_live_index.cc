// SPDX-License-Identifier: Apache-2.0
#include "src/live/live_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "src/tables/embedding_table.h"
#include "table_file.h"
#include "temporary_folder.h"

namespace processor {
namespace {

using tensorflow::tstring;

// The index of a file with `rows` keys, and a copy of it that changes.
class LiveIndexTest : public testing::TestWithParam<bool> {
 protected:
  void Open(const TableFileContent& content) {
    ASSERT_TRUE(EmbeddingTable::Open(folder_.Write("table.emb", content.Bytes()), &table_).ok());
    uint64_t text_bytes = 0;
    for (const std::string& text : content.texts) text_bytes += text.size();
    index_ = LiveIndex::Create(table_->index(), GetParam(), table_->rows(), text_bytes);
    ASSERT_NE(index_, nullptr);
    ASSERT_TRUE(index_->Copy(table_->index(), 0, 1));
    ASSERT_TRUE(index_->Copy(table_->index(), 1, table_->index().num_buckets - 1));
  }

  TableFileContent Content(uint32_t rows) const {
    TableFileContent content;
    content.index_kind = GetParam() ? IndexKind::kString : IndexKind::kInt64;
    content.dim = 1;
    content.rows = rows;
    content.row_data.resize(size_t{rows} * 4);
    for (uint32_t row = 0; row < rows; ++row) {
      content.keys.push_back(row * 3);
      content.texts.push_back(TextOf(row * 3));
    }
    return content;
  }

  static std::string TextOf(int64_t key) {
    return std::string(static_cast<size_t>(key % 40) * (key % 7 == 0 ? 30 : 1), 'x') + std::to_string(key);
  }
  uint64_t NumberOf(int64_t key) const { return GetParam() ? StringKey(TextOf(key)) : static_cast<uint64_t>(key); }

  bool Insert(int64_t key, uint32_t row) { return index_->Insert(NumberOf(key), GetParam() ? TextOf(key) : "", row); }

  void ExpectRows(const std::map<int64_t, uint32_t>& expected, int64_t end) const {
    std::vector<int64_t> keys;
    std::vector<tstring> texts;
    for (int64_t key = 0; key < end; ++key) {
      keys.push_back(key);
      texts.emplace_back(TextOf(key));
    }
    std::vector<uint32_t> rows(keys.size());
    const size_t absent = GetParam() ? index_->Find(absl::MakeConstSpan(texts), rows.data())
                                     : index_->Find(absl::MakeConstSpan(keys), rows.data());
    EXPECT_EQ(absent, keys.size() - expected.size());
    for (int64_t key = 0; key < end; ++key) {
      const auto it = expected.find(key);
      ASSERT_EQ(rows[static_cast<size_t>(key)], it == expected.end() ? kNotFound : it->second) << key;
      ASSERT_EQ(index_->Find(NumberOf(key), TextOf(key)), rows[static_cast<size_t>(key)]);
    }
  }

  const TemporaryFolder folder_;
  std::shared_ptr<const EmbeddingTable> table_;
  std::unique_ptr<LiveIndex> index_;
};

TEST_P(LiveIndexTest, ChangesAtRandomEqualAMap) {
  constexpr uint32_t kRows = 500;
  Open(Content(kRows));
  std::map<int64_t, uint32_t> expected;
  for (uint32_t row = 0; row < kRows; ++row) expected[row * 3] = row;
  ExpectRows(expected, 4 * kRows);
  const size_t bytes = index_->bytes();
  std::mt19937 random(3);
  std::vector<uint32_t> spare;
  for (int turn = 0; turn < 60; ++turn) {
    // Their places and rows are used again after all of them have been erased.
    std::vector<std::pair<LiveIndex::Place, uint32_t>> erased;
    for (int i = 0; i < 100; ++i) {
      const auto it = std::next(expected.begin(), random() % expected.size());
      LiveIndex::Place place;
      EXPECT_FALSE(index_->Erase(NumberOf(it->first), it->second + 1, &place)) << "another row";
      ASSERT_TRUE(index_->Erase(NumberOf(it->first), it->second, &place));
      erased.emplace_back(place, it->second);
      expected.erase(it);
    }
    ExpectRows(expected, 4 * kRows);
    for (const auto& [place, row] : erased) {
      index_->Free(place);
      spare.push_back(row);
    }
    while (!spare.empty()) {
      const auto key = static_cast<int64_t>(random() % (4 * kRows));
      if (!expected.emplace(key, spare.back()).second) continue;
      ASSERT_TRUE(Insert(key, spare.back()));
      spare.pop_back();
    }
    ExpectRows(expected, 4 * kRows);
  }
  EXPECT_LE(index_->bytes(), bytes * (GetParam() ? 2 : 1));
}

TEST_P(LiveIndexTest, PlacesThatWereErasedAreNotUsedBeforeTheyAreFree) {
  Open(Content(4));
  LiveIndex::Place place;
  ASSERT_TRUE(index_->Erase(NumberOf(3), 1, &place));
  const auto at_place = [&] {
    return std::pair(index_->buckets[place.bucket].key(place.i), index_->buckets[place.bucket].row(place.i));
  };
  int64_t added = 1;
  // All places that the index has left.
  for (; Insert(added, 1) && added < 1000; added += 3) ASSERT_EQ(at_place(), std::pair(NumberOf(3), 1u));
  EXPECT_LT(added, 1000) << "it has places for some keys only";
  EXPECT_EQ(index_->Find(NumberOf(3), TextOf(3)), kNotFound);
}

TEST_P(LiveIndexTest, KeysOfTheOtherKindAreNotFound) {
  Open(Content(4));
  uint32_t row = 0;
  const int64_t number = 3;
  const tstring text = TextOf(3);
  const size_t absent = GetParam() ? index_->Find(absl::MakeConstSpan(&number, 1), &row)
                                   : index_->Find(absl::MakeConstSpan(&text, 1), &row);
  EXPECT_EQ(absent, 1);
  EXPECT_EQ(row, kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Kinds, LiveIndexTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Strings" : "Integers"; });

}  // namespace
}  // namespace processor
