// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>

#include "overlay_fixture.h"

namespace processor {
namespace {

using tensorflow::tstring;

constexpr uint32_t kKeptKeys = 600, kTurned = 30;

int64_t AskedKey(int64_t key) { return key; }
tstring AskedKey(const std::string& key) { return tstring(key); }

class OverlayKeysTest : public OverlayTableTest {
 protected:
  // In each epoch the oldest keys are deleted, and as many are added, whose numbers go on.
  template <typename Key>
  void Turn(uint32_t epoch) {
    DeltaFixture<Key> delta;
    for (uint32_t i = (epoch - 1) * kTurned; i < epoch * kTurned; ++i) {
      delta.deleted.insert(NumberedKey<Key>(i));
      delta.changed[NumberedKey<Key>(i + kKeptKeys)] = FourFrom(static_cast<float>(i));
    }
    ASSERT_TRUE(Apply(epoch, delta).ok());
  }

  template <typename Key>
  void ExpectKeysOf(uint32_t epoch) {
    const TableView view(overlay_, epoch);
    for (uint32_t i = 0; i < epoch * kTurned + kKeptKeys + 50; ++i) {
      const auto found = Read(view, AskedKey(NumberedKey<Key>(i)));
      if (i < epoch * kTurned || i >= epoch * kTurned + kKeptKeys) {
        ASSERT_EQ(found, std::nullopt) << i;
      } else {
        ASSERT_EQ(found, FourFrom(i < kKeptKeys ? -static_cast<float>(i) : static_cast<float>(i - kKeptKeys))) << i;
      }
    }
  }

  size_t NewKeys() const {
    const OverlayIndex* const index = overlay_->key_index();
    return index == nullptr ? 0 : index->size() - index->dropped();
  }

  template <typename Key>
  void ExpectThatMemoryStays(IndexKind kind, DeltaKeyKind key_kind) {
    Open(OverlayContent(kind, kKeptKeys, AbsentKey::kZeros).Bytes(), key_kind);
    size_t early = 0;
    for (uint32_t epoch = 1; epoch <= 5 * kKeptKeys / kTurned; ++epoch) {
      Turn<Key>(epoch);
      CompactFor(epoch);
      ExpectKeysOf<Key>(epoch);
      if (epoch == kKeptKeys / kTurned) early = overlay_->bytes();
    }
    ASSERT_NE(overlay_->live_index(), nullptr);
    EXPECT_LE(NewKeys(), 3 * kTurned) << "new keys are in the index, apart from the last";
    EXPECT_LE(overlay_->changed_rows().size(), 2 * kTurned) << "keys that were deleted leave nothing";
    EXPECT_LE(overlay_->live_rows(), 3 * kTurned);
    EXPECT_LE(overlay_->bytes(), early * 105 / 100);
  }
};

TEST_F(OverlayKeysTest, NewIntegersTakeThePlacesOfDeletedOnes) {
  ExpectThatMemoryStays<int64_t>(IndexKind::kInt64, DeltaKeyKind::kInt64);
}

TEST_F(OverlayKeysTest, NewStringsTakeThePlacesOfDeletedOnes) {
  ExpectThatMemoryStays<std::string>(IndexKind::kString, DeltaKeyKind::kString);
}

TEST_F(OverlayKeysTest, FewNewKeysAndDirectTablesNeedNoIndex) {
  Open(OverlayContent(IndexKind::kInt64, kKeptKeys).Bytes());
  DeltaFixture<int64_t> delta;
  for (uint32_t i = 0; i < kKeptKeys / 40; ++i) delta.changed[NumberedKey<int64_t>(kKeptKeys + i)] = FourFrom(1);
  ASSERT_TRUE(Apply(1, delta).ok());
  CompactFor(1);
  EXPECT_EQ(overlay_->live_index(), nullptr);

  overlay_.reset();
  Open(OverlayContent(IndexKind::kDirect, kKeptKeys).Bytes());
  for (uint32_t i = 0; i < kKeptKeys; ++i) delta.changed[kKeptKeys + i] = FourFrom(1);
  ASSERT_TRUE(Apply(1, delta).ok());
  CompactFor(1);
  EXPECT_EQ(overlay_->live_index(), nullptr);
  EXPECT_EQ(Read(TableView(overlay_, 1), int64_t{kKeptKeys}), FourFrom(1));
}

TEST_F(OverlayKeysTest, OtherOverlaysOfAFileKeepItsIndex) {
  Open(OverlayContent(IndexKind::kInt64, kKeptKeys, AbsentKey::kZeros).Bytes());
  std::shared_ptr<OverlayTable> other = overlay_;
  std::unique_ptr<OverlayTable> made;
  ASSERT_TRUE(OverlayTable::Create(base_, DeltaKeyKind::kInt64, {}, &made).ok());
  overlay_ = std::move(made);
  uint32_t epoch = 1;
  for (; epoch <= kKeptKeys / kTurned / 2; ++epoch) {
    Turn<int64_t>(epoch);
    CompactFor(epoch);
  }
  EXPECT_EQ(overlay_->live_index(), nullptr);
  // When it is alone, rows that were lent to new keys belong to them.
  other.reset();
  for (; epoch <= 2 * kKeptKeys / kTurned; ++epoch) {
    Turn<int64_t>(epoch);
    CompactFor(epoch);
    ExpectKeysOf<int64_t>(epoch);
  }
  EXPECT_NE(overlay_->live_index(), nullptr);
  EXPECT_LE(NewKeys(), 3 * kTurned);
}

TEST_F(OverlayKeysTest, TheIndexIsMadeInSlices) {
  constexpr uint32_t kMany = 20000;
  Open(OverlayContent(IndexKind::kInt64, kMany, AbsentKey::kZeros).Bytes());
  DeltaFixture<int64_t> delta;
  for (uint32_t i = 0; i < kMany / 20; ++i) {
    delta.deleted.insert(NumberedKey<int64_t>(7 * i));
    delta.changed[NumberedKey<int64_t>(kMany + i)] = FourFrom(static_cast<float>(i));
  }
  ASSERT_TRUE(Apply(1, delta).ok());
  const TableView view(overlay_, 1);
  int slices = 0;
  for (bool done = false; !done; ++slices) {
    ++generation_;
    overlay_->SetReaders({1, generation_, generation_});
    // A time that is over: a slice is the smallest step.
    const auto over = std::chrono::steady_clock::time_point::min();
    const bool more = overlay_->Compact(over) || overlay_->AdvanceIndex(over);
    done = !more && !overlay_->HasRetired();
    if (slices % 8 != 0 && !done) continue;
    for (uint32_t i = 0; i < kMany; i += 3) {
      const auto found = Read(view, NumberedKey<int64_t>(i));
      if (i % 7 == 0 && i / 7 < kMany / 20) {
        ASSERT_EQ(found, std::nullopt) << i;
      } else {
        ASSERT_EQ(found, FourFrom(-static_cast<float>(i))) << i;
      }
    }
    for (uint32_t i = 0; i < kMany / 20; ++i) {
      ASSERT_EQ(Read(view, NumberedKey<int64_t>(kMany + i)), FourFrom(static_cast<float>(i))) << i;
    }
  }
  EXPECT_GT(slices, 10);
  EXPECT_LE(NewKeys(), 1) << "row 0 is not used again";
}

TEST_F(OverlayKeysTest, KeysThatComeBackReadTheirOwnRowsAtEachEpoch) {
  Open(OverlayContent(IndexKind::kInt64, kKeptKeys, AbsentKey::kZeros).Bytes());
  // A few keys of many come, go and come back within the epochs that are kept.
  std::map<int64_t, std::vector<float>> state;
  for (uint32_t i = 0; i < kKeptKeys; ++i) state[NumberedKey<int64_t>(i)] = FourFrom(-static_cast<float>(i));
  std::deque<std::pair<TableView, std::map<int64_t, std::vector<float>>>> kept;
  std::mt19937 random(7);
  for (uint32_t epoch = 1; epoch <= 400; ++epoch) {
    DeltaFixture<int64_t> delta;
    for (uint32_t i = 0; i < 40; ++i) {
      const int64_t key = NumberedKey<int64_t>(random() % 3 == 0 ? random() % 20 : random() % (kKeptKeys + 100));
      if (random() % 2 == 0 && delta.changed.count(key) == 0) {
        delta.deleted.insert(key);
        state.erase(key);
      } else if (delta.deleted.count(key) == 0) {
        state[key] = delta.changed[key] = FourFrom(static_cast<float>(epoch * 100 + i));
      }
    }
    ASSERT_TRUE(Apply(epoch, delta).ok());
    kept.emplace_back(TableView(overlay_, epoch), state);
    while (kept.size() > 1 + random() % 5) kept.pop_front();
    const uint32_t oldest = epoch + 1 - static_cast<uint32_t>(kept.size());
    CompactFor(oldest);
    if (random() % 2 == 0) WriteInPlaceFor(oldest);
    for (const auto& [view, expected] : kept) {
      for (uint32_t i = 0; i < kKeptKeys + 100; ++i) {
        const auto it = expected.find(NumberedKey<int64_t>(i));
        const auto found = Read(view, NumberedKey<int64_t>(i));
        if (it == expected.end()) {
          ASSERT_EQ(found, std::nullopt) << "epoch " << epoch << ", key " << i;
        } else {
          ASSERT_EQ(found, it->second) << "epoch " << epoch << ", key " << i;
        }
      }
    }
  }
  EXPECT_NE(overlay_->live_index(), nullptr);
}

}  // namespace
}  // namespace processor
