// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "overlay_fixture.h"

namespace processor {
namespace {

class OverlayCompactionTest : public OverlayTableTest {
 protected:
  // Changes the first rows of the file by epochs `from` to `to`, and keeps no epoch but the last.
  void ChangeRows(uint32_t rows, uint32_t from, uint32_t to) {
    for (uint32_t epoch = from; epoch <= to; ++epoch) {
      DeltaFixture<int64_t> delta;
      for (uint32_t row = 0; row < rows; ++row) {
        delta.changed[NumberedKey<int64_t>(row)] = FourFrom(static_cast<float>(100 * epoch + row));
      }
      ASSERT_TRUE(Apply(epoch, delta).ok());
    }
    CompactFor(to);
  }

  void ExpectRows(uint32_t rows, uint32_t epoch) {
    const TableView view(overlay_, epoch);
    for (uint32_t row = 0; row < rows; ++row) {
      ASSERT_EQ(Read(view, NumberedKey<int64_t>(row)), FourFrom(static_cast<float>(100 * epoch + row)));
    }
  }
};

TEST_F(OverlayCompactionTest, RowsThatAllEpochsReadTakeNoMoreMemoryThanThoseOfTheFile) {
  Open(OverlayContent(IndexKind::kInt64, 1000).Bytes());
  ChangeRows(1000, 1, 5);
  EXPECT_EQ(overlay_->live_rows(), 0);
  EXPECT_EQ(overlay_->changed_rows().size(), 0);
  ExpectRows(1000, 5);
  ChangeRows(1, 6, 6);
  EXPECT_EQ(overlay_->live_rows(), 0) << "the block is a copy already";
  ExpectRows(1, 6);
}

TEST_F(OverlayCompactionTest, FewRowsOfABlockStayInTheOverlay) {
  Open(OverlayContent(IndexKind::kInt64, 1000).Bytes());
  ChangeRows(10, 1, 5);  // of 1,003
  EXPECT_EQ(overlay_->live_rows(), 10);
  ExpectRows(10, 5);
}

TEST_F(OverlayCompactionTest, OtherOverlaysOfAFileKeepItsRows) {
  Open(OverlayContent(IndexKind::kInt64, 1000).Bytes());
  std::shared_ptr<OverlayTable> first = overlay_;
  std::unique_ptr<OverlayTable> made;
  ASSERT_TRUE(OverlayTable::Create(base_, DeltaKeyKind::kInt64, {}, &made).ok());
  overlay_ = std::move(made);
  ChangeRows(200, 1, 1);
  EXPECT_EQ(overlay_->live_rows(), 200) << "a copy costs more while another overlay maps the file";
  ChangeRows(1000, 2, 2);
  EXPECT_EQ(overlay_->live_rows(), 0);
  ExpectRows(1000, 2);
  EXPECT_EQ(Read(TableView(first, 0), NumberedKey<int64_t>(3)), FourFrom(-3));
}

TEST_F(OverlayCompactionTest, NewKeysTakeTheRowsOfDeletedOnes) {
  constexpr uint32_t kRows = 600, kAtOnce = 50;
  Open(OverlayContent(IndexKind::kInt64, kRows).Bytes());
  // The oldest keys are deleted, and as many are added, until none is left that the file has; then twice as many again.
  for (uint32_t epoch = 1; epoch <= 3 * kRows / kAtOnce; ++epoch) {
    DeltaFixture<int64_t> delta;
    for (uint32_t i = (epoch - 1) * kAtOnce; i < epoch * kAtOnce; ++i) {
      delta.deleted.insert(NumberedKey<int64_t>(i));
      delta.changed[NumberedKey<int64_t>(i + kRows)] = FourFrom(static_cast<float>(i));
    }
    ASSERT_TRUE(Apply(epoch, delta).ok());
    CompactFor(epoch);
    const TableView view(overlay_, epoch);
    for (uint32_t i = 0; i < 4 * kRows; ++i) {
      const auto found = *Read(view, NumberedKey<int64_t>(i));
      if (i < epoch * kAtOnce || i >= epoch * kAtOnce + kRows) {
        const int64_t key = NumberedKey<int64_t>(i);
        ASSERT_EQ(found[0], -600.0f - static_cast<float>((key % 3 + 3) % 3)) << i;
      } else {
        ASSERT_EQ(found, FourFrom(i < kRows ? -static_cast<float>(i) : static_cast<float>(i - kRows))) << i;
      }
    }
  }
  EXPECT_LE(overlay_->live_rows(), kAtOnce + 1) << "rows of the first epoch, whose rows were not spare yet";
}

TEST_F(OverlayCompactionTest, TheNewestEpochIsWrittenIntoTheFilesRowsAndEarlierOnesAreKept) {
  constexpr uint32_t kRows = 1000;
  Open(OverlayContent(IndexKind::kInt64, kRows).Bytes());
  const auto value = [](uint32_t epoch, uint32_t row) {
    // Row r changes in each epoch that its number divides, so some rows have many versions, and some one or none.
    const uint32_t at = row == 0 || epoch < row ? 0 : epoch - epoch % row;
    return at == 0 ? FourFrom(-static_cast<float>(row)) : FourFrom(static_cast<float>(1000 * at + row));
  };
  const auto expect = [&](uint32_t epoch) {
    const TableView view(overlay_, epoch);
    for (uint32_t row = 0; row < kRows; ++row) {
      ASSERT_EQ(Read(view, NumberedKey<int64_t>(row)), value(epoch, row)) << "epoch " << epoch << ", row " << row;
    }
  };
  constexpr uint32_t kKept = 6;
  for (uint32_t epoch = 1; epoch <= 40; ++epoch) {
    DeltaFixture<int64_t> delta;
    for (uint32_t row = 1; row <= epoch; ++row) {
      if (epoch % row == 0) delta.changed[NumberedKey<int64_t>(row)] = value(epoch, row);
    }
    ASSERT_TRUE(Apply(epoch, delta).ok());
    EXPECT_FALSE(overlay_->IsInFile(epoch));
    // Several epochs may come before there is time.
    if (epoch % 3 == 0 || epoch % 4 == 0) WriteInPlaceFor(epoch < kKept ? 0 : epoch - kKept);
    for (uint32_t read = epoch < kKept ? 0 : epoch - kKept; read <= epoch; ++read) expect(read);
    if (epoch > kKept && epoch % 5 == 0) CompactFor(epoch - kKept);
    for (uint32_t read = epoch < kKept ? 0 : epoch - kKept; read <= epoch; ++read) expect(read);
  }
  WriteInPlaceFor(40);
  EXPECT_TRUE(overlay_->IsInFile(40));
  EXPECT_FALSE(overlay_->IsInFile(39));
  CompactFor(40);
  EXPECT_EQ(overlay_->changed_rows().size(), 0);
  EXPECT_EQ(overlay_->live_rows(), 0);
  expect(40);
}

TEST_F(OverlayCompactionTest, ARowIsWrittenInPlaceWhenNobodyReadsWhatItReplaces) {
  Open(OverlayContent(IndexKind::kInt64, 1000).Bytes());
  const TableView first(overlay_, 0);  // to which a rollback may return
  DeltaFixture<int64_t> delta;
  for (uint32_t row = 0; row < 100; ++row) delta.changed[NumberedKey<int64_t>(row)] = FourFrom(1);
  ASSERT_TRUE(Apply(1, delta).ok());
  const int64_t key = NumberedKey<int64_t>(7);
  uint32_t before = 0, after = 0;
  first.FindRows(absl::MakeConstSpan(&key, 1), &before);
  EXPECT_EQ(before, 7);
  TableView(overlay_, 0).FindRows(absl::MakeConstSpan(&key, 1), &before);
  TableView(overlay_, 1).FindRows(absl::MakeConstSpan(&key, 1), &after);
  const auto values = [&](uint32_t row) {
    std::vector<float> found(kOverlayDim);
    std::memcpy(found.data(), overlay_->rows() + size_t{row} * base_->row_stride(), 16);
    return found;
  };
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_FALSE(overlay_->WriteInPlace(std::chrono::steady_clock::time_point::max()));
    EXPECT_EQ(overlay_->awaited(), generation_) << "requests of this generation are still running";
    EXPECT_FALSE(overlay_->IsInFile(1));
    EXPECT_EQ(values(before), FourFrom(-7));
  }
  overlay_->SetReaders({0, generation_ + 1, generation_ + 1});
  EXPECT_FALSE(overlay_->WriteInPlace(std::chrono::steady_clock::time_point::max()));
  EXPECT_TRUE(overlay_->IsInFile(1));
  EXPECT_EQ(values(after), FourFrom(1)) << "requests that found the version read it on";
  EXPECT_TRUE(overlay_->HasRetired());
  EXPECT_EQ(Read(first, key), FourFrom(-7));
  EXPECT_EQ(Read(TableView(overlay_, 1), key), FourFrom(1));
  delta.changed = {{key, FourFrom(2)}};
  ASSERT_TRUE(Apply(2, delta).ok());
  EXPECT_FALSE(overlay_->IsInFile(2)) << "the next epoch has versions again";
  EXPECT_EQ(Read(TableView(overlay_, 2), key), FourFrom(2));
  EXPECT_EQ(Read(TableView(overlay_, 1), key), FourFrom(1));
  EXPECT_EQ(Read(TableView(overlay_, 0), key), FourFrom(-7));
}

TEST_F(OverlayCompactionTest, RowsAcrossBlocksKeepTheirValues) {
  constexpr uint32_t kRows = 250000, kStride = 20;  // three blocks of 2 MB, whose bounds are inside rows
  TableFileContent content;
  content.row_stride = kStride;
  content.rows = kRows;
  content.row_data.resize(size_t{kRows} * kStride);
  Open(content.Bytes());
  DeltaFixture<int64_t> delta;
  for (uint32_t row = 0; row < kRows; ++row) delta.changed[row] = FourFrom(static_cast<float>(row));
  ASSERT_TRUE(Apply(1, delta).ok());
  CompactFor(1);
  EXPECT_LE(overlay_->live_rows(), 2);
  EXPECT_LE(overlay_->bytes(), size_t{kRows} * 20) << "the memory of most versions has gone";
  const TableView view(overlay_, 1);
  for (int64_t row = 0; row < kRows; ++row) ASSERT_EQ(Read(view, row), FourFrom(static_cast<float>(row)));
}

TEST_F(OverlayCompactionTest, VersionsThatAnEpochReadsAreKept) {
  Open(OverlayContent(IndexKind::kInt64, 1000).Bytes());
  const TableView before(overlay_, 0);
  DeltaFixture<int64_t> delta;
  for (uint32_t row = 0; row < 1000; ++row) delta.changed[NumberedKey<int64_t>(row)] = FourFrom(1);
  ASSERT_TRUE(Apply(1, delta).ok());
  CompactFor(0);
  EXPECT_EQ(Read(before, NumberedKey<int64_t>(7)), FourFrom(-7));
  EXPECT_EQ(overlay_->live_rows(), 1000);
  CompactFor(1);
  EXPECT_EQ(Read(TableView(overlay_, 1), NumberedKey<int64_t>(7)), FourFrom(1));
  EXPECT_EQ(overlay_->live_rows(), 0);
}

TEST_F(OverlayCompactionTest, ReadersThatFoundAVersionReadItOn) {
  Open(OverlayContent(IndexKind::kInt64, 1000).Bytes());
  ChangeRows(1000, 1, 1);
  DeltaFixture<int64_t> delta;
  delta.changed = {{-50, FourFrom(7)}};
  ASSERT_TRUE(Apply(2, delta).ok());
  uint32_t row = 0;
  const int64_t key = -50;
  TableView(overlay_, 2).FindRows(absl::MakeConstSpan(&key, 1), &row);
  overlay_->SetReaders({2, generation_, generation_});
  EXPECT_FALSE(overlay_->Compact(std::chrono::steady_clock::time_point::max()));
  EXPECT_TRUE(overlay_->HasRetired());
  // Requests of the generation before are still running.
  overlay_->SetReaders({2, generation_ + 1, generation_});
  delta.changed = {{-43, FourFrom(8)}, {-36, FourFrom(9)}};
  ASSERT_TRUE(Apply(3, delta).ok());
  std::vector<float> values(4);
  std::memcpy(values.data(), overlay_->rows() + size_t{row} * base_->row_stride(), 16);
  EXPECT_EQ(values, FourFrom(7));
}

TEST_F(OverlayCompactionTest, MemoryDoesNotGrowWithEpochs) {
  constexpr uint32_t kRows = 4000, kChanged = 80, kKept = 9;
  Open(OverlayContent(IndexKind::kInt64, kRows).Bytes());
  std::mt19937 random(1);
  size_t early = 0;
  for (uint32_t epoch = 1; epoch <= 10000; ++epoch) {
    DeltaFixture<int64_t> delta;
    for (uint32_t i = 0; i < kChanged; ++i) {
      delta.changed[NumberedKey<int64_t>(random() % kRows)] = FourFrom(static_cast<float>(epoch));
    }
    for (uint32_t i = 0; i < 5; ++i) {
      // Keys that come and go.
      delta.changed[int64_t{1000000} + epoch * 5 + i] = FourFrom(static_cast<float>(epoch));
      if (epoch > 100) delta.deleted.insert(int64_t{1000000} + (epoch - 100) * 5 + i);
    }
    ASSERT_TRUE(Apply(epoch, delta).ok());
    if (epoch > kKept) CompactFor(epoch - kKept);
    if (epoch % 7 != 0) WriteInPlaceFor(epoch < kKept ? 0 : epoch - kKept);
    if (epoch == 1000) early = overlay_->bytes();
  }
  EXPECT_LE(overlay_->live_rows(), (kChanged + 2 * 5) * (kKept + 1) + 5 * 100);
  EXPECT_LE(overlay_->bytes(), early * 102 / 100);
  EXPECT_EQ(Read(TableView(overlay_, 10000), int64_t{1000000 + 10000 * 5}), FourFrom(10000));
}

// What key `number` of the stress test reads at an epoch: it changes in one epoch of five, and with `deletions` it is deleted
// in some of them.
constexpr uint32_t kStressRows = 300, kStressKeys = 400;
bool IsDeletedBy(uint32_t epoch, uint32_t number, bool deletions) {
  return deletions && (number * 31 + epoch) % 4 == 0;
}
std::vector<float> ValueBy(uint32_t epoch, uint32_t number) {
  return FourFrom(static_cast<float>(1000 * epoch + number));
}
std::vector<float> DefaultAt(uint32_t epoch, int64_t key) {
  const auto number = static_cast<uint32_t>((key % 3 + 3) % 3);
  const uint32_t age = (epoch + 3 - number) % 3;
  if (age >= epoch) return FourFrom(-300.0f - static_cast<float>(number));
  return FourFrom(5e6f + 10 * static_cast<float>(epoch - age));
}
std::vector<float> ExpectedAt(uint32_t epoch, uint32_t number, bool deletions) {
  const uint32_t age = (number + epoch) % 5;
  const bool deleted = age < epoch && IsDeletedBy(epoch - age, number, deletions);
  if (age < epoch && !deleted) return ValueBy(epoch - age, number);
  if (deleted || number >= kStressRows) return DefaultAt(epoch, NumberedKey<int64_t>(number));
  return FourFrom(-static_cast<float>(number));
}
DeltaFixture<int64_t> StressDelta(uint32_t epoch, bool deletions) {
  DeltaFixture<int64_t> delta;
  for (uint32_t number = (5 - epoch % 5) % 5; number < kStressKeys; number += 5) {
    if (IsDeletedBy(epoch, number, deletions)) {
      delta.deleted.insert(NumberedKey<int64_t>(number));
    } else {
      delta.changed[NumberedKey<int64_t>(number)] = ValueBy(epoch, number);
    }
  }
  delta.defaults[epoch % 3] = FourFrom(5e6f + 10 * static_cast<float>(epoch));
  return delta;
}

// A view that was published once. The writer waits for its readers before it uses again what they may have found.
struct PublishedView {
  PublishedView(TableView view, uint32_t epoch, uint64_t generation)
      : view(std::move(view)), epoch(epoch), generation(generation) {}
  const TableView view;
  const uint32_t epoch;
  const uint64_t generation;
  std::atomic<int> readers{0};
};

class OverlayThreadsTest : public OverlayTableTest, public testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(Deletions, OverlayThreadsTest, testing::Bool());

TEST_P(OverlayThreadsTest, ReadersOfSeveralEpochsSeeTheirRowsWhileOthersAreWrittenAndCompacted) {
  const bool deletions = GetParam();
  constexpr uint32_t kEpochs = 500, kMostEpochs = 100 * kEpochs;
  constexpr size_t kKept = 5, kWritten = 50;
  Open(OverlayContent(IndexKind::kInt64, kStressRows).Bytes());
  std::mutex mutex;  // of the views; everything else is read without a lock
  std::deque<PublishedView> views;
  views.emplace_back(TableView(overlay_, 0), 0, generation_);
  std::atomic<bool> done{false};
  const auto read = [&](uint32_t seed) {
    std::mt19937 random(seed);
    constexpr size_t kAtOnce = 40;
    while (!done.load()) {
      PublishedView* pinned = nullptr;
      {
        std::lock_guard<std::mutex> lock(mutex);
        pinned = &views[views.size() - 1 - random() % std::min(kKept, views.size())];
        pinned->readers.fetch_add(1);
      }
      for (int turn = 0; turn < 5; ++turn) {
        int64_t keys[kAtOnce];
        uint32_t numbers[kAtOnce], rows[kAtOnce];
        for (size_t i = 0; i < kAtOnce; ++i) {
          numbers[i] = random() % kStressKeys;
          keys[i] = NumberedKey<int64_t>(numbers[i]);
        }
        pinned->view.FindRows(absl::MakeConstSpan(keys), rows);
        if (turn == 2) std::this_thread::yield();
        for (size_t i = 0; i < kAtOnce; ++i) {
          std::vector<float> found(kOverlayDim);
          std::memcpy(found.data(), overlay_->rows() + size_t{rows[i]} * base_->row_stride(), 4 * kOverlayDim);
          ASSERT_EQ(found, ExpectedAt(pinned->epoch, numbers[i], deletions))
              << "epoch " << pinned->epoch << ", key " << numbers[i];
        }
      }
      pinned->readers.fetch_sub(1);
    }
  };
  std::vector<std::thread> readers;
  for (uint32_t r = 0; r < 4; ++r) readers.emplace_back(read, r);
  const auto set_readers = [&] {
    std::lock_guard<std::mutex> lock(mutex);
    while (views.size() > kKept && views.front().readers.load() == 0) views.pop_front();
    overlay_->SetReaders({views.front().epoch, views.back().generation, views.front().generation});
  };
  size_t written = 0, in_file = 0;
  // On a busy machine a reader may hold an early view for hundreds of epochs, and nothing is written in place meanwhile.
  const auto has_seen_all = [&] { return written > kWritten && (deletions || in_file > 0); };
  for (uint32_t epoch = 1; epoch <= kEpochs || (epoch <= kMostEpochs && !has_seen_all()); ++epoch) {
    set_readers();
    DeltaFixture<int64_t> delta = StressDelta(epoch, deletions);
    const absl::Status applied = Apply(epoch, delta);
    EXPECT_TRUE(applied.ok()) << applied;
    {
      std::lock_guard<std::mutex> lock(mutex);
      views.emplace_back(TableView(overlay_, epoch), epoch, ++generation_);
    }
    // Sometimes there is time until the epoch has been written in place, if it can be.
    const bool has_time = epoch % 4 == 0 && !deletions;
    for (bool more = true; more || (has_time && !overlay_->IsInFile(epoch));) {
      set_readers();
      const size_t before = overlay_->changed_rows().size();
      more = overlay_->Compact(std::chrono::steady_clock::now() + std::chrono::microseconds(20));
      if (!more) more = overlay_->AdvanceIndex(std::chrono::steady_clock::now() + std::chrono::microseconds(20));
      if (!more) more = overlay_->WriteInPlace(std::chrono::steady_clock::now() + std::chrono::microseconds(20));
      in_file += overlay_->IsInFile(epoch);
      written += before - overlay_->changed_rows().size();
      if (!overlay_->HasRetired()) continue;
      std::lock_guard<std::mutex> lock(mutex);
      views.emplace_back(TableView(overlay_, epoch), epoch, ++generation_);
    }
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(written, kWritten);
  // With deletions, this takes until they have left the index.
  EXPECT_TRUE(deletions || in_file > 0);
}

}  // namespace
}  // namespace processor
