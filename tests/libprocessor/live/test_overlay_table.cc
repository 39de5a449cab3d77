// SPDX-License-Identifier: Apache-2.0
#include "src/live/overlay_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "delta_fixture.h"
#include "src/live/table_view.h"
#include "table_file.h"
#include "temporary_folder.h"

namespace processor {
namespace {

using tensorflow::tstring;

constexpr uint32_t kOverlayDim = 4;

std::vector<float> FourFrom(float value) { return {value, value + 1, value + 2, value + 3}; }

std::string RowsOfFloats(uint64_t rows) {
  std::string bytes;
  for (uint64_t row = 0; row < rows; ++row) {
    const std::vector<float> values = FourFrom(-static_cast<float>(row));
    bytes.append(reinterpret_cast<const char*>(values.data()), 4 * kOverlayDim);
  }
  return bytes;
}

TableFileContent OverlayContent(IndexKind kind, uint64_t rows, AbsentKey absent = AbsentKey::kDefaultRows) {
  TableFileContent content;
  content.index_kind = kind;
  content.dim = kOverlayDim;
  content.absent_key = absent;
  content.default_rows = absent == AbsentKey::kDefaultRows ? 3 : 0;
  content.rows = rows;
  for (uint64_t row = 0; row < rows; ++row) {
    content.keys.push_back(static_cast<int64_t>(row) * 7 - 50);
    content.texts.push_back("key " + std::to_string(row));
  }
  content.row_data = RowsOfFloats(rows + content.default_rows);
  return content;
}

class OverlayTableTest : public testing::Test {
 protected:
  void Open(const std::string& bytes, DeltaKeyKind kind = DeltaKeyKind::kInt64, SourceRows source = {}) {
    ASSERT_TRUE(EmbeddingTable::Open(folder_.Write("table.emb", bytes), &base_).ok());
    std::unique_ptr<OverlayTable> made;
    const absl::Status status = OverlayTable::Create(base_, kind, std::move(source), &made);
    ASSERT_TRUE(status.ok()) << status;
    overlay_ = std::move(made);
  }

  template <typename Key>
  absl::Status Apply(uint32_t epoch, DeltaFixture<Key>& delta) {
    OverlayTable::Change change;
    absl::Status status = overlay_->Prepare(delta.Table(), &change);
    if (status.ok()) overlay_->Commit(epoch, &change);
    return status;
  }

  template <typename Key>
  static std::optional<std::vector<float>> Read(const TableView& view, const Key& key) {
    uint32_t row = 0;
    view.FindRows(absl::MakeConstSpan(&key, 1), &row);
    if (row >= kRefusedRow) return std::nullopt;
    std::vector<float> values(kOverlayDim);
    std::memcpy(values.data(), view.overlay().rows() + size_t{row} * view.base().row_stride(), 4 * kOverlayDim);
    return values;
  }

  const TemporaryFolder folder_;
  std::shared_ptr<const EmbeddingTable> base_;
  std::shared_ptr<OverlayTable> overlay_;
};

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
  delta.changed = {{-50, FourFrom(100)}, {5, FourFrom(std::numeric_limits<float>::infinity())}};
  EXPECT_EQ(Apply(1, delta).message(), "key 5: element 0 is inf, expected a finite number");
  delta.changed.erase(5);
  delta.defaults = {{0, FourFrom(1)}};
  EXPECT_EQ(Apply(1, delta).message(), "default row 0, expected one of 0");
  EXPECT_EQ(overlay_->live_rows(), 0);
  EXPECT_EQ(Read(TableView(overlay_, 1), int64_t{-50}), FourFrom(0));
  EXPECT_EQ(Read(TableView(overlay_, 1), int64_t{5}), std::nullopt);
}

TEST_F(OverlayTableTest, RowsAreReusedOnceNoEpochNeedsThem) {
  Open(OverlayContent(IndexKind::kInt64, 50).Bytes());
  DeltaFixture<int64_t> delta;
  for (uint32_t epoch = 1; epoch <= 200; ++epoch) {
    if (epoch > 3) overlay_->Reclaim(epoch - 3);
    delta.changed.clear();
    delta.deleted.clear();
    for (int64_t i = 0; i < 20; ++i) {
      // New keys that come and go, and rows of the file.
      delta.changed[static_cast<int64_t>(epoch + 1) * 1000 + i] = FourFrom(static_cast<float>(epoch));
      delta.deleted.insert(static_cast<int64_t>(epoch) * 1000 + i);
      delta.changed[i * 7 - 50] = FourFrom(static_cast<float>(epoch));
    }
    ASSERT_TRUE(Apply(epoch, delta).ok());
    EXPECT_LE(overlay_->live_rows(), 20 * 2 * 6);
  }
  EXPECT_LE(TableView(overlay_, 200).overlay().bytes(), size_t{10} << 20);
}

// What the keys of a table read at an epoch.
template <typename Key>
struct TableState {
  std::map<Key, std::vector<float>> rows;
  std::vector<std::vector<float>> defaults;
};

template <typename Key>
Key NumberedKey(uint32_t number);
template <>
int64_t NumberedKey<int64_t>(uint32_t number) {
  return static_cast<int64_t>(number) * 7 - 50;
}
template <>
std::string NumberedKey<std::string>(uint32_t number) {
  return "key " + std::to_string(number);
}

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
                     OverlayTable* overlay, const std::function<TableView(uint32_t)>& view_of, Find&& read) {
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
    overlay->Reclaim(oldest);
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
      IndexKind::kInt64, [&](uint32_t epoch, auto& delta) { return Apply(epoch, delta); }, overlay_.get(),
      [&](uint32_t epoch) { return TableView(overlay_, epoch); },
      [&](const TableView& view, int64_t key) { return Read(view, key); });
}

TEST_F(OverlayTableTest, RandomChangesOfStringsEqualMaps) {
  Open(OverlayContent(IndexKind::kString, 150).Bytes(), DeltaKeyKind::kString);
  CompareWithMaps<std::string>(
      IndexKind::kString, [&](uint32_t epoch, auto& delta) { return Apply(epoch, delta); }, overlay_.get(),
      [&](uint32_t epoch) { return TableView(overlay_, epoch); },
      [&](const TableView& view, const std::string& key) { return Read(view, tstring(key)); });
}

// An epoch that readers hold. The last one tells the writer.
struct PinnedEpoch {
  PinnedEpoch(TableView view, uint32_t epoch) : view(std::move(view)), epoch(epoch) {}
  const TableView view;
  const uint32_t epoch;
  std::atomic<int> readers{0};
};

TEST_F(OverlayTableTest, ReadersSeeOneEpochWhileTheNextOnesAreWritten) {
  constexpr uint32_t kEpochs = 400, kKeys = 200;
  Open(OverlayContent(IndexKind::kInt64, 100).Bytes());
  std::mutex mutex;  // of the newest epoch; everything else is read without a lock
  std::deque<PinnedEpoch> epochs;
  epochs.emplace_back(TableView(overlay_, 0), 0);
  std::atomic<bool> done{false};
  const auto read = [&](uint32_t seed) {
    std::mt19937 random(seed);
    while (!done.load()) {
      PinnedEpoch* pinned = nullptr;
      {
        std::lock_guard<std::mutex> lock(mutex);
        pinned = &epochs.back();
        pinned->readers.fetch_add(1);
      }
      for (int i = 0; i < 50; ++i) {
        const uint32_t number = random() % kKeys;
        const auto row = Read(pinned->view, NumberedKey<int64_t>(number));
        const bool deleted = (number + pinned->epoch) % 5 == 0;
        ASSERT_TRUE(row.has_value());
        if (pinned->epoch == 0 || deleted) {
          ASSERT_LE((*row)[0], 0) << "key " << number;
        } else {
          ASSERT_EQ(*row, FourFrom(static_cast<float>(pinned->epoch))) << "key " << number;
        }
      }
      pinned->readers.fetch_sub(1);
    }
  };
  std::vector<std::thread> readers;
  for (uint32_t r = 0; r < 3; ++r) readers.emplace_back(read, r);
  for (uint32_t epoch = 1; epoch <= kEpochs; ++epoch) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      while (epochs.size() > 1 && epochs.front().readers.load() == 0) epochs.pop_front();
    }
    overlay_->Reclaim(epochs.front().epoch);
    DeltaFixture<int64_t> delta;
    for (uint32_t number = 0; number < kKeys; ++number) {
      if ((number + epoch) % 5 == 0) {
        delta.deleted.insert(NumberedKey<int64_t>(number));
      } else {
        delta.changed[NumberedKey<int64_t>(number)] = FourFrom(static_cast<float>(epoch));
      }
    }
    ASSERT_TRUE(Apply(epoch, delta).ok());
    std::lock_guard<std::mutex> lock(mutex);
    epochs.emplace_back(TableView(overlay_, epoch), epoch);
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace processor
