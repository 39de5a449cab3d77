// SPDX-License-Identifier: Apache-2.0
#include "src/tables/table_index.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <unordered_map>

#include "src/tables/embedding_table.h"
#include "table_file.h"
#include "temporary_folder.h"

namespace processor {
namespace {

using tensorflow::tstring;

constexpr size_t kSizes[] = {0, 1, 2, 5, 6, 97, 10000};
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kLargestKey = std::numeric_limits<int64_t>::max();

std::shared_ptr<const EmbeddingTable> OpenBytes(const std::string& bytes) {
  const TemporaryFolder folder;
  std::shared_ptr<const EmbeddingTable> table;
  const absl::Status status = EmbeddingTable::Open(folder.Write("table.emb", bytes), &table);
  EXPECT_TRUE(status.ok()) << status;
  return table;  // stays mapped although the file has no name any more
}

template <typename Key>
std::vector<uint32_t> RowsOf(const EmbeddingTable& table, const std::vector<Key>& keys) {
  std::vector<uint32_t> rows(keys.size() + 1, 12345);
  table.FindRows(absl::MakeConstSpan(keys), rows.data());
  EXPECT_EQ(rows.back(), 12345) << "written behind the end";
  rows.pop_back();
  return rows;
}

std::vector<int64_t> RandomKeys(size_t count, std::mt19937_64* random) {
  std::unordered_map<int64_t, bool> seen;
  std::vector<int64_t> keys = {0, -1, kLeast, kLargestKey, 1};
  for (int64_t key : keys) seen[key] = true;
  keys.resize(std::min(count, keys.size()));
  while (keys.size() < count) {
    const auto key = static_cast<int64_t>((*random)());
    if (!seen[key]) keys.push_back(key);
    seen[key] = true;
  }
  return keys;
}

uint32_t DefaultRow(int64_t key, uint32_t rows, int64_t default_rows) {
  const int64_t remainder = key % default_rows;
  return rows + static_cast<uint32_t>(remainder < 0 ? remainder + default_rows : remainder);
}

TEST(TableIndex, DirectKeysAreRows) {
  for (size_t size : kSizes) {
    TableFileContent content;
    content.rows = size;
    const auto table = OpenBytes(content.Bytes());
    ASSERT_NE(table, nullptr);
    std::vector<int64_t> keys = {kLeast,           kLargestKey,           -1, static_cast<int64_t>(size),
                                 int64_t{1} << 32, (int64_t{1} << 32) + 1};
    const size_t absent = keys.size();
    for (size_t i = 0; i < size; ++i) keys.push_back(static_cast<int64_t>(i));
    const std::vector<uint32_t> rows = RowsOf(*table, keys);
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(rows[i], i < absent ? kZeroRow : keys[i]) << keys[i];
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(table->row(i)[0], i * content.Stride() % 251);
  }
}

TEST(TableIndex, FindsIntegerKeys) {
  std::mt19937_64 random(1);
  for (size_t size : kSizes) {
    for (uint64_t homes : {uint64_t{0}, uint64_t{1}, size / 5 + 1}) {
      if (homes == 1 && size > 1000) continue;  // one long search
      TableFileContent content;
      content.index_kind = IndexKind::kInt64;
      content.keys = RandomKeys(size, &random);
      content.home_buckets = homes;
      const auto table = OpenBytes(content.Bytes());
      ASSERT_NE(table, nullptr);
      std::unordered_map<int64_t, uint32_t> expected;
      for (uint32_t row = 0; row < size; ++row) expected[content.keys[row]] = row;
      std::vector<int64_t> keys = content.keys;
      for (int64_t key : {int64_t{0}, int64_t{-1}, kLeast, kLargestKey}) keys.push_back(key);
      for (size_t i = 0; i < size + 3; ++i) keys.push_back(static_cast<int64_t>(random()));
      std::shuffle(keys.begin(), keys.end(), random);
      const std::vector<uint32_t> rows = RowsOf(*table, keys);
      for (size_t i = 0; i < keys.size(); ++i) {
        const auto found = expected.find(keys[i]);
        ASSERT_EQ(rows[i], found == expected.end() ? kZeroRow : found->second) << size << " keys, " << keys[i];
      }
    }
  }
}

TEST(TableIndex, FindsStringKeys) {
  for (size_t size : kSizes) {
    TableFileContent content;
    content.index_kind = IndexKind::kString;
    for (size_t i = 0; i < size; ++i) content.texts.push_back(std::string(i % 40, 'x') + std::to_string(i));
    if (size > 2) content.texts[2] = "";
    if (size > 4) content.texts[4] = std::string("nul\0nul", 7);
    const auto table = OpenBytes(content.Bytes());
    ASSERT_NE(table, nullptr);
    std::unordered_map<std::string, uint32_t> expected;
    for (uint32_t row = 0; row < size; ++row) expected[content.texts[row]] = row;
    std::vector<std::string> texts = content.texts;
    for (const char* absent :
         {"", "nul", "never", "a much longer string than any that the table holds, of many letters"}) {
      texts.push_back(absent);
    }
    const std::vector<tstring> keys(texts.begin(), texts.end());
    const std::vector<uint32_t> rows = RowsOf(*table, keys);
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto found = expected.find(texts[i]);
      ASSERT_EQ(rows[i], found == expected.end() ? kZeroRow : found->second) << size << " keys, '" << texts[i] << "'";
    }
  }
}

// What overflows goes to the next buckets, and to those that are no key's home.
TEST(TableIndex, FindsKeysThatOverflowTheirBucket) {
  std::mt19937_64 random(2);
  for (size_t size : {5, 6, 9, 10, 11, 63}) {
    for (uint64_t home : {0, 3, 7}) {
      TableFileContent content;
      content.index_kind = IndexKind::kInt64;
      content.home_buckets = 8;
      std::vector<int64_t> absent;
      while (absent.size() < 10) {
        const auto key = static_cast<int64_t>(random());
        if (HomeOf(static_cast<uint64_t>(key), 8) != home) continue;
        (content.keys.size() < size ? content.keys : absent).push_back(key);
      }
      const auto table = OpenBytes(content.Bytes());
      ASSERT_NE(table, nullptr);
      const std::vector<uint32_t> rows = RowsOf(*table, content.keys);
      for (uint32_t row = 0; row < size; ++row) EXPECT_EQ(rows[row], row);
      for (uint32_t row : RowsOf(*table, absent)) EXPECT_EQ(row, kZeroRow);
    }
  }
}

TEST(TableIndex, DistinguishesStringsWithEqualFingerprints) {
  for (size_t count : {2, 5, 6, 13}) {
    TableFileContent content;
    content.index_kind = IndexKind::kString;
    for (size_t i = 0; i < count; ++i) content.texts.push_back("text " + std::to_string(i));
    // All have the fingerprint of the last: it is found although the bytes of all before are others.
    content.fingerprints.assign(count, util::Fingerprint64(content.texts.back().data(), content.texts.back().size()));
    const auto table = OpenBytes(content.Bytes());
    ASSERT_NE(table, nullptr);
    EXPECT_EQ(RowsOf<tstring>(*table, {content.texts.back()})[0], count - 1);
    // A string of this fingerprint that is not there: no row, whatever has its fingerprint.
    content.texts.back() = "something else";
    EXPECT_EQ(RowsOf<tstring>(*OpenBytes(content.Bytes()), {"text " + std::to_string(count - 1)})[0], kZeroRow);
  }
}

TEST(TableIndex, AbsentKeysFollowThePolicy) {
  const std::vector<int64_t> keys = {5, -1, 0, kLeast, kLargestKey, -7, 700, 1};
  const std::vector<tstring> texts = {"here", "there", "", "nowhere"};
  for (IndexKind kind : {IndexKind::kDirect, IndexKind::kInt64, IndexKind::kString}) {
    for (AbsentKey policy : {AbsentKey::kZeros, AbsentKey::kError, AbsentKey::kDefaultRows}) {
      for (uint32_t default_rows : {1, 3}) {
        TableFileContent content;
        content.index_kind = kind;
        content.absent_key = policy;
        content.default_rows = policy == AbsentKey::kDefaultRows ? default_rows : 0;
        content.rows = 2;
        content.keys = {0, 1};
        content.texts = {"here", "hole"};
        const auto table = OpenBytes(content.Bytes());
        ASSERT_NE(table, nullptr);
        const auto expected = [&](int64_t remainder) -> uint32_t {
          if (policy == AbsentKey::kZeros) return kZeroRow;
          return policy == AbsentKey::kError ? kRefusedRow : DefaultRow(remainder, 2, default_rows);
        };
        if (kind == IndexKind::kString) {
          const std::vector<uint32_t> rows = RowsOf(*table, texts);
          EXPECT_EQ(rows[0], 0);
          for (size_t i = 1; i < texts.size(); ++i) {
            const uint64_t hash = util::Fingerprint64(texts[i].data(), texts[i].size());
            EXPECT_EQ(rows[i], expected(static_cast<int64_t>(hash % default_rows)));
          }
          for (uint32_t row : RowsOf(*table, keys)) EXPECT_EQ(row, kRefusedRow) << "of another kind";
        } else {
          const std::vector<uint32_t> rows = RowsOf(*table, keys);
          for (size_t i = 0; i < keys.size(); ++i) {
            EXPECT_EQ(rows[i], keys[i] == 0 || keys[i] == 1 ? keys[i] : expected(keys[i])) << keys[i];
          }
          for (uint32_t row : RowsOf(*table, texts)) EXPECT_EQ(row, kRefusedRow) << "of another kind";
        }
      }
    }
  }
}

}  // namespace
}  // namespace processor
