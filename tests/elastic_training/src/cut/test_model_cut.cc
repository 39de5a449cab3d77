// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>

#include "cut_fixture.h"

namespace elastic_training {
namespace {

CutSettings Settings(uint64_t base, uint64_t token) { return {base, token, size_t{64} << 20}; }

Copy FullCopy(ElasticTable* table) {
  ModelCut cut({table}, Settings(0, 0));
  Copy copy;
  ReadInto(&cut.at(0), false, &copy);
  return copy;
}

TEST(ModelCut, HasRowsAsTheyWereWhenItBegan) {
  const auto table = CountingTable("a");
  Train(table.get(), Keys(0, 1000));
  const Copy before = FullCopy(table.get());
  ModelCut cut({table.get()}, Settings(0, 0));
  EXPECT_EQ(cut.at(0).step(), 1);
  EXPECT_EQ(cut.at(0).occurrences(), 1000);
  Train(table.get(), Keys(500, 1000));  // changes 500 rows and adds 500
  Evict(table.get(), Keys(0, 100));
  Train(table.get(), Keys(50, 10));  // ten of them come back
  Copy copy;
  EXPECT_EQ(ReadInto(&cut.at(0), false, &copy), 1000);
  EXPECT_TRUE(copy == before);
  EXPECT_EQ(copy.at(7).count, 1);
  EXPECT_EQ(copy.at(7).values[kDim], 1.0f);
}

TEST(ModelCut, TakesChangesSinceTheCutBefore) {
  const auto table = CountingTable("a", R"({"admission": {"kind": "count", "threshold": 2}})");
  Copy copy;
  uint64_t token = 0;
  size_t read = 0;
  const auto cut = [&](bool expect_changes) {
    ModelCut one({table.get()}, Settings(token, token + 1));
    EXPECT_EQ(one.changes_only(), expect_changes);
    // Training goes on meanwhile; the next cut must have what it changes.
    Train(table.get(), Keys(900, 20));
    read = ReadInto(&one.at(0), one.changes_only(), &copy);
    one.End(true);
    ++token;
  };
  Train(table.get(), Keys(0, 1000));
  Train(table.get(), Keys(0, 600));
  cut(false);
  EXPECT_EQ(read, 1000);
  EXPECT_EQ(copy.at(0).kind, static_cast<uint32_t>(RowKind::kFull));
  EXPECT_EQ(copy.at(800).kind, static_cast<uint32_t>(RowKind::kCandidate));
  Train(table.get(), Keys(590, 20));
  Evict(table.get(), Keys(0, 3));
  Evict(table.get(), Keys(700, 3));  // candidates
  Train(table.get(), Keys(1, 1));
  cut(true);
  EXPECT_EQ(read, 20 + 20 + 1);
  cut(true);
  EXPECT_EQ(read, 20);
  cut(true);
  EXPECT_EQ(copy.count(0), 0);
  EXPECT_EQ(copy.count(700), 0);
  EXPECT_EQ(copy.at(1).count, 1);
  // What trained during the last cut is not in it.
  EXPECT_EQ(copy.at(900).count, 4);
  ModelCut last({table.get()}, Settings(token, 0));
  ReadInto(&last.at(0), true, &copy);
  last.End(true);
  EXPECT_TRUE(copy == FullCopy(table.get()));
}

TEST(ModelCut, TakesAllRowsIfChangesWereLost) {
  const auto a = CountingTable("a"), b = CountingTable("b");
  const std::vector<ElasticTable*> both = {a.get(), b.get()};
  const auto changes_only = [&](const std::vector<ElasticTable*>& tables, uint64_t base, uint64_t token, bool read,
                                bool success) {
    ModelCut cut(tables, Settings(base, token));
    Copy copy;
    for (size_t i = 0; read && i < cut.size(); ++i) ReadInto(&cut.at(i), cut.changes_only(), &copy);
    cut.End(success);
    return cut.changes_only();
  };
  Train(a.get(), Keys(0, 10));
  EXPECT_FALSE(changes_only(both, 7, 8, true, true));  // never cut before
  EXPECT_FALSE(changes_only(both, 0, 0, true, true));  // of no consequence for others
  EXPECT_TRUE(changes_only(both, 8, 9, true, true));
  EXPECT_FALSE(changes_only(both, 8, 10, true, true));  // not the last one
  EXPECT_TRUE(changes_only(both, 10, 11, true, false));
  EXPECT_FALSE(changes_only(both, 11, 12, true, true));  // the last one failed
  EXPECT_TRUE(changes_only(both, 12, 13, false, true));
  EXPECT_FALSE(changes_only(both, 13, 14, true, true));  // the last one was not read
  EXPECT_FALSE(changes_only({b.get()}, 0, 15, true, true));
  EXPECT_FALSE(changes_only(both, 14, 16, true, true));  // one table was cut alone
}

TEST(ModelCut, RefusesASecondCutOfATable) {
  const auto a = CountingTable("a"), b = CountingTable("b");
  auto cut = std::make_unique<ModelCut>(std::vector<ElasticTable*>{a.get()}, Settings(0, 0));
  try {
    ModelCut second({b.get(), a.get()}, Settings(0, 0));
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "table 'a': a cut is being read, expected its end before the next one");
  }
  EXPECT_NO_THROW(ModelCut({b.get()}, Settings(0, 0)));
  cut.reset();
  EXPECT_NO_THROW(ModelCut({b.get(), a.get()}, Settings(0, 0)));
}

TEST(ModelCut, KeepsRowsOfSegmentsThatSplit) {
  const auto table = CountingTable("a");
  constexpr size_t kRows = 500'000;  // 16 segments split soon
  Train(table.get(), Keys(0, kRows));
  ModelCut cut({table.get()}, Settings(0, 0));
  std::vector<RowBlock> blocks;
  // Read some of each segment's rows, let it split and update, and so on.
  uint64_t next = kRows;
  size_t rows = 0;
  for (;;) {
    const RowBlock block = cut.at(0).Read(2 << 20);
    if (block.empty()) break;
    rows += block.keys.size();
    for (size_t i = 0; i < block.keys.size(); ++i) {
      ASSERT_LT(block.keys[i], kRows);
      ASSERT_EQ(block.meta[3 * i + 1], 1);
    }
    if (next < kRows + 200'000) Train(table.get(), Keys(next, 20'000)), next += 20'000;
    Train(table.get(), Keys(next % kRows, 1000));
  }
  EXPECT_EQ(rows, kRows);
}

TEST(ModelCut, HasStringKeysAndReleasedRows) {
  const auto table = CountingTable("a", R"({"key": "string", "optimizer": {"kind": "sgd", "l21": 1e-9}})");
  const std::vector<uint64_t> keys = {1, 2};
  const std::vector<std::string_view> texts = {"one", "zwei"};
  std::vector<int64_t> kinds = {static_cast<int64_t>(RowKind::kFull), static_cast<int64_t>(RowKind::kReleased)};
  RowContents contents;
  contents.kinds = kinds.data();
  table->Insert({keys.data(), texts.data(), 2}, contents);
  ModelCut cut({table.get()}, Settings(0, 1));
  table->Evict({keys.data(), texts.data(), 2});
  const RowBlock block = cut.at(0).Read(1 << 20);
  ASSERT_EQ(block.keys.size(), 2);
  EXPECT_EQ(block.values.size(), table->layout().dim + table->layout().slots);
  const bool first = block.keys[0] == 1;
  EXPECT_EQ(block.texts, first ? "onezwei" : "zweione");
  EXPECT_EQ(block.lengths, first ? (std::vector<uint32_t>{3, 4}) : (std::vector<uint32_t>{4, 3}));
  EXPECT_EQ(block.meta[first ? 5 : 2], static_cast<uint32_t>(RowKind::kReleased));
  EXPECT_TRUE(cut.at(0).Read(1).empty());
  cut.End(true);
  ModelCut changes({table.get()}, Settings(1, 0));
  const RowBlock evicted = changes.at(0).TakeEvicted();
  EXPECT_EQ(evicted.texts.size(), 7);
  EXPECT_TRUE(changes.at(0).Read(1).empty());
}

TEST(ModelCut, HasTheFilterAsItWas) {
  const std::string config = R"({"admission": {"kind": "counting_filter", "threshold": 3, "expected_keys": 1000}})";
  const auto table = CountingTable("a", config), copy = CountingTable("b", config);
  Train(table.get(), Keys(0, 100));
  std::string state;
  {
    ModelCut cut({table.get()}, Settings(0, 0));
    Train(table.get(), Keys(0, 100));
    state = cut.at(0).TakeFilter();
    EXPECT_THROW(cut.at(0).TakeFilter(), std::runtime_error);
  }
  copy->admission().Restore(state);
  // With the count of one, the third time comes after two more.
  Train(copy.get(), Keys(0, 100));
  EXPECT_EQ(copy->counts().full, 0);
  Train(copy.get(), Keys(0, 100));
  EXPECT_EQ(copy->counts().full, 100);
}

TEST(ModelCut, EndsTheFilterThatNobodyTook) {
  for (const char* const kind : {"counting_filter", "poisson"}) {
    const std::string config =
        std::string(R"({"admission": {"threshold": 3, "expected_keys": 1000, "kind": ")") + kind + "\"}}";
    const auto cut_table = CountingTable("a", config), other = CountingTable("b", config);
    for (ElasticTable* const table : {cut_table.get(), other.get()}) Train(table, Keys(0, 100));
    ModelCut cut({cut_table.get()}, Settings(0, 0));
    for (ElasticTable* const table : {cut_table.get(), other.get()}) Train(table, Keys(0, 100));
    cut.End(false);
    EXPECT_THROW(cut.at(0).TakeFilter(), std::runtime_error);
    // It counts on, and is saved as it is now.
    for (ElasticTable* const table : {cut_table.get(), other.get()}) Train(table, Keys(50, 100));
    EXPECT_EQ(cut_table->counts().full, 50) << kind;
    EXPECT_EQ(cut_table->admission().Save(), other->admission().Save()) << kind;
  }
}

}  // namespace
}  // namespace elastic_training
