// SPDX-License-Identifier: Apache-2.0
#include "src/storage/ssd_index.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "src/base/hash.h"

namespace elastic_training {
namespace {

constexpr int kDepth = 6;
constexpr uint64_t kPrefix = 37;

// Hashes that begin with the bits of the index.
uint64_t HashAt(uint64_t number) { return kPrefix << (64 - kDepth) | Mix(number) >> kDepth; }

TEST(SsdIndex, IsEmptyWithoutBuckets) {
  const SsdIndex index;
  EXPECT_TRUE(index.full());
  EXPECT_EQ(index.Find(HashAt(1)), SsdIndex::kNone);
}

TEST(SsdIndex, AgreesWithAMapUntilItIsFull) {
  SsdIndex index(2000, kDepth);
  std::map<uint64_t, LogPlace> map;  // by hash
  std::mt19937_64 random(1);
  size_t fills = 0;
  for (int step = 0; step < 40000; ++step) {
    const uint64_t hash = HashAt(random() % 4000);
    const uint32_t slot = index.Find(hash);
    ASSERT_EQ(slot == SsdIndex::kNone, map.count(hash) == 0);
    if (slot != SsdIndex::kNone) {
      ASSERT_EQ(index.place(slot), map[hash]);
      ASSERT_EQ(index.hash(slot), SsdIndex::BitsOf(hash));
      if (random() % 3 != 0) continue;
      index.Erase(slot);
      map.erase(hash);
    } else if (!index.full()) {
      const auto place = static_cast<LogPlace>(random() >> 33);
      index.Insert({SsdIndex::BitsOf(hash), place, 0, 0, 0, 0});
      map[hash] = place;
    } else {
      ++fills;
    }
    ASSERT_EQ(index.size(), map.size());
  }
  EXPECT_GT(fills, 100);
  std::set<LogPlace> left;
  index.ForEach([&](uint32_t slot) { left.insert(index.place(slot)); });
  EXPECT_EQ(left.size(), map.size());
}

TEST(SsdIndex, KeepsEqualBitsApart) {
  SsdIndex index(100, kDepth);
  const uint64_t hash = HashAt(5);
  for (LogPlace place = 0; place < 40; ++place) index.Insert({SsdIndex::BitsOf(hash), place, 0, 0, 0, 0});
  for (LogPlace place = 0; place < 40; ++place) {
    const uint32_t slot = index.Find(hash | 1, [&](uint32_t one) { return index.place(one) == place; });
    ASSERT_NE(slot, SsdIndex::kNone);
    index.Erase(slot);
  }
  EXPECT_EQ(index.Find(hash), SsdIndex::kNone);
}

TEST(SsdIndex, GrowsWithoutKeys) {
  SsdIndex small(500, kDepth);
  for (uint64_t number = 0; !small.full(); ++number) {
    small.Insert({SsdIndex::BitsOf(HashAt(number)), static_cast<LogPlace>(number), kCutFlag | kZeroFlag | kFirstMark,
                  1 << 20, 5, 0.5f});
  }
  // An index of the second half of the hashes, as a split segment has.
  SsdIndex large(700, kDepth), half(700, kDepth + 1);
  small.ForEach([&](uint32_t slot) { large.InsertFrom(small, slot); });
  uint32_t moved = 0;
  for (uint64_t number = 0; number < small.size(); ++number) {
    const uint32_t slot = large.Find(HashAt(number));
    ASSERT_NE(slot, SsdIndex::kNone);
    const SsdEntry entry = large.at(slot);
    EXPECT_EQ(entry.place, number);
    EXPECT_EQ(entry.flags, kCutFlag | kZeroFlag | kFirstMark | kLiveFlag);
    EXPECT_EQ(entry.touch, 1 << 20);
    EXPECT_EQ(entry.count, 5);
    EXPECT_EQ(entry.norm, 0.5f);
    if ((HashAt(number) >> (63 - kDepth) & 1) == 0) continue;
    ASSERT_EQ(half.place(half.InsertFrom(large, slot)), number);
    ++moved;
  }
  EXPECT_EQ(half.size(), moved);
  EXPECT_GT(moved, 200);
}

TEST(SsdIndex, TakesAtMostSixteenBytesARow) {
  SsdIndex index(20000, kDepth);
  EXPECT_LT(static_cast<double>(index.bytes()) / 20000, 14.9);
}

TEST(SsdIndex, FlagsChangeAlone) {
  SsdIndex index(10, kDepth);
  const uint32_t slot = index.Insert({SsdIndex::BitsOf(HashAt(1)), 77, kCheckpointDirty, 5000, 100, 2});
  index.set_flags(slot, kSecondMark | kCutFlag | kZeroFlag);
  EXPECT_EQ(index.flags(slot), kSecondMark | kCutFlag | kZeroFlag | kLiveFlag);
  index.set_place(slot, 78);
  index.set_flags(slot, 0);
  EXPECT_EQ(index.flags(slot), kLiveFlag);
  const SsdEntry entry = index.at(slot);
  EXPECT_EQ(entry.place, 78);
  EXPECT_EQ(entry.touch, RoundedTouch(5000));
  EXPECT_EQ(entry.count, RoundedCount(100));
  EXPECT_EQ(entry.norm, 2);
}

TEST(SsdIndex, RoundsUpByLittle) {
  for (uint32_t count = 0; count < RowHeader::kMaxCount; count += count / 100 + 1) {
    EXPECT_GE(RoundedCount(count), count);
    EXPECT_LE(RoundedCount(count), count + count / 8);
    EXPECT_EQ(RoundedCount(RoundedCount(count)), RoundedCount(count));
  }
  EXPECT_EQ(RoundedCount(RowHeader::kMaxCount), RowHeader::kMaxCount);
  for (uint64_t touch = 0; touch < 1u << 30; touch += touch / 100 + 1) {
    EXPECT_GE(RoundedTouch(static_cast<uint32_t>(touch)), touch);
    EXPECT_LT(RoundedTouch(static_cast<uint32_t>(touch)), touch + 1024);
  }
  for (float norm = 1e-11f; norm < 1e7f; norm *= 1.01f) {
    EXPECT_GE(RoundedNorm(norm), norm);
    EXPECT_LE(RoundedNorm(norm), norm * 1.1893f);
  }
  EXPECT_EQ(RoundedNorm(0), 0);
  EXPECT_GT(RoundedNorm(1e-30f), 0);
  EXPECT_EQ(RoundedNorm(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
  EXPECT_EQ(RoundedNorm(std::nanf("")), std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace elastic_training
