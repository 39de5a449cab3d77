// SPDX-License-Identifier: Apache-2.0
#include "src/live/overlay_table.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "overlay_fixture.h"

namespace processor {
namespace {

using tensorflow::tstring;

TEST_F(OverlayTableTest, ReadersOfEachEpochSeeItsRows) {
  Open(OverlayContent(IndexKind::kInt64, 100).Bytes());
  const TableView before(overlay_, 0);
  DeltaFixture<int64_t> delta;
  delta.changed = {{-50, FourFrom(100)}, {9999, FourFrom(200)}};
  delta.deleted = {-43, 12345};
  delta.defaults = {{1, FourFrom(300)}};
  ASSERT_TRUE(Apply(1, delta).ok());
  const TableView first(overlay_, 1);
  DeltaFixture<int64_t> next;
  next.changed = {{-43, FourFrom(400)}, {-50, FourFrom(500)}};
  next.deleted = {9999};
  ASSERT_TRUE(Apply(2, next).ok());
  const TableView second(overlay_, 2);

  EXPECT_EQ(Read(before, int64_t{-50}), FourFrom(0));
  EXPECT_EQ(Read(before, int64_t{-43}), FourFrom(-1));
  EXPECT_EQ(Read(before, int64_t{9999}), FourFrom(-100));  // 9999 % 3 = 0: the first default row
  EXPECT_EQ(Read(before, int64_t{1}), FourFrom(-101));

  EXPECT_EQ(Read(first, int64_t{-50}), FourFrom(100));
  EXPECT_EQ(Read(first, int64_t{9999}), FourFrom(200));
  EXPECT_EQ(Read(first, int64_t{-43}), FourFrom(-102)) << "deleted: -43 modulo 3 is 2";
  EXPECT_EQ(Read(first, int64_t{1}), FourFrom(300)) << "a default row that has changed";
  EXPECT_EQ(Read(first, int64_t{-36}), FourFrom(-2)) << "not changed";

  EXPECT_EQ(Read(second, int64_t{-50}), FourFrom(500));
  EXPECT_EQ(Read(second, int64_t{-43}), FourFrom(400));
  EXPECT_EQ(Read(second, int64_t{9999}), FourFrom(-100));
  EXPECT_EQ(Read(second, int64_t{1}), FourFrom(300));
}

TEST_F(OverlayTableTest, KeysThatShareARowChangeAlone) {
  TableFileContent content = OverlayContent(IndexKind::kInt64, 20);
  std::string bytes = content.Bytes();
  // The key of row 1 leads to row 0 as well.
  const uint64_t offset = Get<uint64_t>(bytes, 104), size = Get<uint64_t>(bytes, 112);
  for (uint64_t bucket = offset; bucket < offset + size; bucket += 64) {
    for (uint32_t i = 0; i < Get<uint32_t>(bytes, bucket + 60); ++i) {
      if (Get<uint32_t>(bytes, bucket + 40 + 4 * i) == 1) Put<uint32_t>(&bytes, bucket + 40 + 4 * i, 0);
    }
  }
  RepairChecksums(&bytes);
  Open(bytes);
  DeltaFixture<int64_t> delta;
  delta.changed = {{-50, FourFrom(100)}};
  ASSERT_TRUE(Apply(1, delta).ok());
  const TableView first(overlay_, 1);
  EXPECT_EQ(Read(first, int64_t{-50}), FourFrom(100));
  EXPECT_EQ(Read(first, int64_t{-43}), FourFrom(0));
  DeltaFixture<int64_t> next;
  next.deleted = {-43};
  ASSERT_TRUE(Apply(2, next).ok());
  EXPECT_EQ(Read(TableView(overlay_, 2), int64_t{-50}), FourFrom(100));
  EXPECT_EQ(Read(TableView(overlay_, 2), int64_t{-43}), FourFrom(-22));
  EXPECT_EQ(Read(first, int64_t{-43}), FourFrom(0));
}

TEST_F(OverlayTableTest, RowNumbersOfAVariableReachTheRowsOfTheFile) {
  SourceRows source;
  source.first_row = 10;
  source.num_rows = 1000;
  Open(OverlayContent(IndexKind::kString, 20).Bytes(), DeltaKeyKind::kRowNumber, source);
  DeltaFixture<int64_t> delta;
  delta.kind = DeltaKeyKind::kRowNumber;
  delta.changed = {{9, FourFrom(1)}, {10, FourFrom(100)}, {31, FourFrom(200)}, {33, FourFrom(2)}};
  ASSERT_TRUE(Apply(1, delta).ok());
  const TableView view(overlay_, 1);
  EXPECT_EQ(Read(view, tstring("key 0")), FourFrom(100));
  EXPECT_EQ(Read(view, tstring("key 1")), FourFrom(-1));
  std::set<float> absent;
  for (int i = 0; i < 50; ++i) absent.insert((*Read(view, tstring("absent " + std::to_string(i))))[0]);
  EXPECT_EQ(absent, (std::set<float>{-20, 200, -22}));
  delta.changed = {{1000, FourFrom(1)}};
  EXPECT_EQ(Apply(2, delta).message(), "row 1000, expected one from 0 to 999");
}

TEST_F(OverlayTableTest, RowsOfTheSourceMayBeInAnyOrder) {
  SourceRows source;
  source.rows = {5, 4, -1, 4};
  Open(OverlayContent(IndexKind::kString, 4, AbsentKey::kZeros).Bytes(), DeltaKeyKind::kRowNumber, source);
  DeltaFixture<int64_t> delta;
  delta.kind = DeltaKeyKind::kRowNumber;
  delta.changed = {{4, FourFrom(100)}, {6, FourFrom(200)}};
  ASSERT_TRUE(Apply(1, delta).ok());
  const TableView view(overlay_, 1);
  EXPECT_EQ(Read(view, tstring("key 0")), FourFrom(0));
  EXPECT_EQ(Read(view, tstring("key 1")), FourFrom(100));
  EXPECT_EQ(Read(view, tstring("key 2")), FourFrom(-2));
  EXPECT_EQ(Read(view, tstring("key 3")), FourFrom(100));
}

TEST_F(OverlayTableTest, ChangesThatDoNotFitLeaveTheTableAsItWas) {
  Open(OverlayContent(IndexKind::kInt64, 20, AbsentKey::kError).Bytes());
  DeltaFixture<int64_t> delta;
  delta.changed = {{-50, FourFrom(100)}};
  delta.defaults = {{0, FourFrom(1)}};
  EXPECT_EQ(Apply(1, delta).message(), "default row 0, expected one of 0");
  EXPECT_EQ(overlay_->live_rows(), 0);
  EXPECT_EQ(Read(TableView(overlay_, 1), int64_t{-50}), FourFrom(0));
  EXPECT_EQ(Read(TableView(overlay_, 1), int64_t{5}), std::nullopt);
}

// What the keys of a table read at an epoch.
template <typename Key>
struct TableState {
  std::map<Key, std::vector<float>> rows;
  std::vector<std::vector<float>> defaults;
};

template <typename Key>
void ChangeAtRandom(std::mt19937* random, TableState<Key>* state, DeltaFixture<Key>* delta) {
  static float value = 1000;
  for (int i = 0; i < 60; ++i) {
    const Key key = NumberedKey<Key>((*random)() % 300);
    if ((*random)() % 4 == 0) {
      if (delta->changed.count(key) == 0) delta->deleted.insert(key);
    } else if (delta->deleted.count(key) == 0) {
      delta->changed[key] = FourFrom(++value);
    }
  }
  if ((*random)() % 3 == 0) delta->defaults[(*random)() % 3] = FourFrom(++value);
  for (const auto& [key, row] : delta->changed) state->rows[key] = row;
  for (const Key& key : delta->deleted) state->rows.erase(key);
  for (const auto& [number, row] : delta->defaults) state->defaults[number] = row;
}

// Compares tables with maps, one for each epoch that is still read.
template <typename Key, typename Find>
void CompareWithMaps(IndexKind kind, const std::function<absl::Status(uint32_t, DeltaFixture<Key>&)>& apply,
                     const std::function<void(uint32_t)>& compact_for,
                     const std::function<TableView(uint32_t)>& view_of, Find&& read) {
  std::mt19937 random(kind == IndexKind::kString ? 5 : 4);
  TableState<Key> state;
  for (uint32_t row = 0; row < 150; ++row) state.rows[NumberedKey<Key>(row)] = FourFrom(-static_cast<float>(row));
  for (int i = 0; i < 3; ++i) state.defaults.push_back(FourFrom(-150.0f - static_cast<float>(i)));
  std::deque<std::pair<TableView, TableState<Key>>> epochs;
  epochs.emplace_back(view_of(0), state);
  uint32_t oldest = 0;
  for (uint32_t epoch = 1; epoch <= 60; ++epoch) {
    while (epochs.size() > 1 + random() % 6) {
      epochs.pop_front();
      ++oldest;
    }
    compact_for(oldest);
    DeltaFixture<Key> delta;
    ChangeAtRandom(&random, &state, &delta);
    ASSERT_TRUE(apply(epoch, delta).ok());
    epochs.emplace_back(view_of(epoch), state);
    for (const auto& [view, expected] : epochs) {
      for (uint32_t number = 0; number < 310; ++number) {
        const Key key = NumberedKey<Key>(number);
        const auto it = expected.rows.find(key);
        const auto found = read(view, key);
        if (it != expected.rows.end()) {
          ASSERT_EQ(found, it->second) << "epoch " << epoch << ", key " << number;
          continue;
        }
        size_t remainder;
        if constexpr (std::is_same_v<Key, std::string>) {
          remainder = StringKey(key) % 3;
        } else {
          remainder = static_cast<size_t>(((key % 3) + 3) % 3);
        }
        ASSERT_EQ(found, expected.defaults[remainder]) << "epoch " << epoch << ", absent key " << number;
      }
    }
  }
}

TEST_F(OverlayTableTest, RandomChangesOfIntegersEqualMaps) {
  Open(OverlayContent(IndexKind::kInt64, 150).Bytes());
  CompareWithMaps<int64_t>(
      IndexKind::kInt64, [&](uint32_t epoch, auto& delta) { return Apply(epoch, delta); },
      [&](uint32_t oldest) { CompactFor(oldest); }, [&](uint32_t epoch) { return TableView(overlay_, epoch); },
      [&](const TableView& view, int64_t key) { return Read(view, key); });
}

TEST_F(OverlayTableTest, RandomChangesOfStringsEqualMaps) {
  Open(OverlayContent(IndexKind::kString, 150).Bytes(), DeltaKeyKind::kString);
  CompareWithMaps<std::string>(
      IndexKind::kString, [&](uint32_t epoch, auto& delta) { return Apply(epoch, delta); },
      [&](uint32_t oldest) { CompactFor(oldest); }, [&](uint32_t epoch) { return TableView(overlay_, epoch); },
      [&](const TableView& view, const std::string& key) { return Read(view, tstring(key)); });
}

}  // namespace
}  // namespace processor
