// SPDX-License-Identifier: Apache-2.0
#include "src/storage/bucket_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "src/base/hash.h"

namespace elastic_training {
namespace {

TEST(BucketIndex, IsEmptyWithoutBuckets) {
  const BucketIndex index;
  EXPECT_TRUE(index.full());
  EXPECT_EQ(index.Guess(1), kNoRow);
  EXPECT_EQ(index.Find(1, [](uint32_t) { return true; }), kNoRow);
}

// Inserts, erases and replaces at random, near the fill at which the index is full, beside a map.
TEST(BucketIndex, AgreesWithAMap) {
  std::mt19937_64 random(1);
  BucketIndex index(280);
  std::map<uint64_t, uint32_t> expected;  // hash → row
  uint32_t next = 0;
  const auto find = [&](uint64_t hash) {
    return index.Find(hash, [&](uint32_t row) {
      const auto found = expected.find(hash);
      return found != expected.end() && found->second == row;
    });
  };
  for (int i = 0; i < 50000; ++i) {
    const uint64_t hash = Mix(random() % 400);
    const auto found = expected.find(hash);
    ASSERT_EQ(find(hash), found == expected.end() ? kNoRow : found->second);
    if (found == expected.end()) {
      if (index.full()) continue;
      index.Insert(hash, next);
      expected[hash] = next++;
    } else if (random() % 4 == 0) {
      index.Replace(hash, found->second, next);
      found->second = next++;
    } else if (random() % 2 == 0) {
      index.Erase(hash, found->second);
      expected.erase(found);
    }
    ASSERT_EQ(index.size(), expected.size());
  }
  std::vector<uint32_t> rows;
  index.ForEach([&](uint32_t row) { rows.push_back(row); });
  EXPECT_EQ(rows.size(), expected.size());
  EXPECT_GT(expected.size(), 150u);
  for (const auto& [hash, row] : std::map<uint64_t, uint32_t>(expected)) {
    index.Erase(hash, row);
    expected.erase(hash);
  }
  // No entry is left that a search would have to pass.
  EXPECT_EQ(index.size(), 0u);
  int compared = 0;
  for (uint64_t key = 0; key < 400; ++key) index.Find(Mix(key), [&](uint32_t) { return ++compared > 0; });
  EXPECT_EQ(compared, 0);
}

TEST(BucketIndex, KeepsEntriesWithEqualHashesApart) {
  BucketIndex index(100);
  for (uint32_t row = 0; row < 50; ++row) index.Insert(7, row);
  for (uint32_t row = 0; row < 50; row += 2) index.Erase(7, row);
  for (uint32_t row = 0; row < 50; ++row) {
    EXPECT_EQ(index.Find(7, [&](uint32_t other) { return other == row; }), row % 2 == 0 ? kNoRow : row);
  }
}

}  // namespace
}  // namespace elastic_training
