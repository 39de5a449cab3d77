// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cut_fixture.h"

namespace elastic_training {
namespace {

constexpr size_t kMemory = size_t{64} << 20;

// Reads the changes of a table into a copy, and returns how many rows they had.
size_t Follow(ElasticTable* table, Copy* copy) {
  ModelChanges changes({table}, kMemory);
  const size_t rows = ReadInto(&changes.at(0), true, copy);
  EXPECT_TRUE(changes.End(true));
  return rows;
}

size_t RecordedEvictions(const ElasticTable& table) { return table.Stats()["recorded_evictions"]; }

TEST(ModelChanges, HasRowsAsTheyWereWhenItBegan) {
  const auto table = CountingTable("a");
  Train(table.get(), Keys(0, 1000));
  table->Follow();
  Copy copy;
  EXPECT_EQ(Follow(table.get(), &copy), 1000);  // all rows at first
  EXPECT_EQ(Follow(table.get(), &copy), 0);
  Train(table.get(), Keys(100, 50));
  const std::vector<float> trained = copy.at(0).values;
  EXPECT_EQ(trained.size(), kDim);
  ModelChanges changes({table.get()}, kMemory);
  // What comes now belongs to the next cut.
  Train(table.get(), Keys(120, 100));
  Evict(table.get(), Keys(140, 5));
  Train(table.get(), Keys(2000, 3));
  EXPECT_EQ(ReadInto(&changes.at(0), true, &copy), 50);
  EXPECT_TRUE(changes.End(true));
  for (const uint64_t key : Keys(100, 50)) EXPECT_EQ(copy.at(key).count, 2) << key;
  EXPECT_EQ(copy.at(160).values, trained);
  EXPECT_EQ(copy.count(2000), 0);
  EXPECT_EQ(Follow(table.get(), &copy), 100 - 5 + 3);
  EXPECT_EQ(copy.count(140), 0);
  EXPECT_EQ(copy.at(130).count, 3);
  EXPECT_EQ(copy.at(2000).count, 1);
}

TEST(ModelChanges, HasReleasedAndEvictedKeysButNoCandidates) {
  const auto table = CountingTable(
      "a", R"({"admission": {"kind": "count", "threshold": 2}, "optimizer": {"kind": "sgd", "l21": 1e-9}})");
  table->Follow();
  std::vector<uint64_t> keys = {1, 2, 3};
  std::vector<int64_t> kinds = {static_cast<int64_t>(RowKind::kFull), static_cast<int64_t>(RowKind::kReleased),
                                static_cast<int64_t>(RowKind::kCandidate)};
  RowContents contents;
  contents.kinds = kinds.data();
  table->Insert({keys.data(), nullptr, keys.size()}, contents);
  Copy copy;
  EXPECT_EQ(Follow(table.get(), &copy), 2);
  EXPECT_EQ(copy.at(2).kind, static_cast<uint32_t>(RowKind::kReleased));
  // A row that is released while a cut has not read it yet.
  table->Insert({&keys[0], nullptr, 1}, {});
  ModelChanges changes({table.get()}, kMemory);
  int64_t released = static_cast<int64_t>(RowKind::kReleased);
  contents.kinds = &released;
  table->Insert({&keys[0], nullptr, 1}, contents);
  Evict(table.get(), {2, 3});
  EXPECT_EQ(ReadInto(&changes.at(0), true, &copy), 1);
  EXPECT_EQ(copy.at(1).kind, static_cast<uint32_t>(RowKind::kFull));
  EXPECT_TRUE(changes.End(true));
  EXPECT_EQ(RecordedEvictions(*table), 1);
  EXPECT_EQ(Follow(table.get(), &copy), 1);
  EXPECT_EQ(copy.at(1).kind, static_cast<uint32_t>(RowKind::kReleased));
  EXPECT_EQ(copy.count(2), 0);
}

TEST(ModelChanges, LeavesTheMarksOfCheckpoints) {
  const auto table = CountingTable("a");
  table->Follow();
  Train(table.get(), Keys(0, 100));
  const auto checkpoint = [&](uint64_t base, Copy* copy) {
    ModelCut cut({table.get()}, {base, base + 1, kMemory});
    const size_t rows = ReadInto(&cut.at(0), cut.changes_only(), copy);
    EXPECT_TRUE(cut.End(true));
    return rows;
  };
  Copy saved, published;
  EXPECT_EQ(checkpoint(0, &saved), 100);
  Train(table.get(), Keys(10, 10));
  // Both are read at the same time.
  ModelChanges changes({table.get()}, kMemory);
  Train(table.get(), Keys(15, 10));
  EXPECT_EQ(checkpoint(1, &saved), 15);
  EXPECT_EQ(ReadInto(&changes.at(0), true, &published), 100);
  changes.End(true);
  EXPECT_EQ(published.at(15).count, 2);
  EXPECT_EQ(saved.at(15).count, 3);
  EXPECT_EQ(Follow(table.get(), &published), 10);
  EXPECT_EQ(checkpoint(2, &saved), 0);
}

TEST(ModelChanges, IsLostIfNobodyReadsIt) {
  const auto a = CountingTable("a"), b = CountingTable("b");
  const std::vector<ElasticTable*> both = {a.get(), b.get()};
  a->Follow(), b->Follow();
  Train(a.get(), Keys(0, 100));
  Train(b.get(), Keys(0, 100));
  {
    ModelChanges changes(both, kMemory);
    Train(a.get(), Keys(0, 10));  // kept, and dropped
    Copy copy;
    ReadInto(&changes.at(1), true, &copy);
    EXPECT_FALSE(changes.End(true));
  }
  const std::string lost =
      "table 'a': the cut is lost: the changes since the one before are not known, expected that "
      "the table is followed anew";
  for (int i = 0; i < 2; ++i) {
    ModelChanges changes(both, kMemory);
    EXPECT_EQ(MessageOf([&] { changes.at(0).Read(1 << 20); }), lost);
    Copy copy;
    EXPECT_EQ(ReadInto(&changes.at(1), true, &copy), 0);
  }
  a->Follow();
  Copy copy;
  EXPECT_EQ(Follow(a.get(), &copy), 100);
  EXPECT_EQ(copy.at(5).count, 2);
}

TEST(ModelChanges, NeedsAPublisherThatFollows) {
  const auto a = CountingTable("a"), b = CountingTable("b");
  const std::vector<ElasticTable*> both = {a.get(), b.get()};
  const auto begin = [&] { ModelChanges changes(both, kMemory); };
  a->Follow();
  EXPECT_EQ(MessageOf(begin), "table 'b': not followed, expected a publisher that does");
  b->Follow();
  {
    ModelChanges changes({b.get()}, kMemory);
    EXPECT_EQ(MessageOf(begin), "table 'b': a cut is being read, expected its end before the next one");
    EXPECT_NE(MessageOf([&] { b->Follow(); }).find("table 'b': changes are being read"), std::string::npos);
  }
  Train(a.get(), Keys(0, 1000));
  Evict(a.get(), Keys(0, 100));
  EXPECT_EQ(RecordedEvictions(*a), 100);
  a->Unfollow();
  Evict(a.get(), Keys(100, 100));
  EXPECT_EQ(RecordedEvictions(*a), 0);
  EXPECT_EQ(MessageOf(begin), "table 'a': not followed, expected a publisher that does");
}

TEST(ModelChanges, KeepsRowsOfSegmentsThatSplit) {
  const auto table = CountingTable("a");
  constexpr size_t kRows = 500'000;  // 16 segments split soon
  table->Follow();
  Train(table.get(), Keys(0, kRows));
  ModelChanges changes({table.get()}, kMemory);
  uint64_t next = kRows;
  size_t rows = 0;
  for (RowBlock block; !(block = changes.at(0).Read(2 << 20)).empty();) {
    rows += block.keys.size();
    for (size_t i = 0; i < block.keys.size(); ++i) {
      ASSERT_LT(block.keys[i], kRows);
      ASSERT_EQ(block.meta[3 * i + 1], 1);
    }
    if (next < kRows + 200'000) Train(table.get(), Keys(next, 20'000)), next += 20'000;
    Train(table.get(), Keys(next % kRows, 1000));
  }
  EXPECT_EQ(rows, kRows);
  EXPECT_TRUE(changes.End(true));
}

}  // namespace
}  // namespace elastic_training
