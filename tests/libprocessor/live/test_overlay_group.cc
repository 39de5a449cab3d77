// SPDX-License-Identifier: Apache-2.0
// Live models of one timeline that share the overlays of their tables.
#include "src/live/overlay_group.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "overlay_fixture.h"
#include "slow_weights.h"
#include "src/live/live_model.h"

namespace processor {
namespace {

constexpr uint32_t kGroupRows = 600;
constexpr auto kLong = std::chrono::microseconds(10'000'000);

class OverlayGroupTest : public testing::Test {
 protected:
  using Model = tensorflow::core::RefCountPtr<LiveModel>;

  OverlayGroupTest() { base_ = Open("table.emb", kGroupRows); }

  std::shared_ptr<const EmbeddingTable> Open(const std::string& name, uint32_t rows) {
    std::shared_ptr<const EmbeddingTable> table;
    EXPECT_TRUE(
        EmbeddingTable::Open(folder_.Write(name, OverlayContent(IndexKind::kInt64, rows).Bytes()), &table).ok());
    return table;
  }

  Model Make(std::shared_ptr<const EmbeddingTable> base, const std::string& timeline = "/deltas") {
    LiveDescription description;
    description.chain = Chain(0);
    LiveDescription::Table& table = description.tables.emplace_back();
    table.source = "table";
    table.dim = kOverlayDim;
    Model made;
    EXPECT_TRUE(LiveModel::Create(std::move(description), {std::move(base)}, {"table"}, nullptr, &made).ok());
    made->Share(timeline);
    return made;
  }

  static ChainHash Chain(uint64_t epoch) { return {static_cast<uint8_t>(epoch), 1}; }

  // The changes of an epoch: all rows, or one that is deleted.
  absl::Status Apply(LiveModel& model, uint64_t first, uint64_t last, const std::function<bool()>& give_up = nullptr) {
    DeltaFixture<int64_t> delta;
    for (uint32_t row = 0; row < kGroupRows; ++row) {
      if (row != last) delta.changed[NumberedKey<int64_t>(row)] = FourFrom(static_cast<float>(last));
    }
    delta.deleted.insert(NumberedKey<int64_t>(static_cast<uint32_t>(last)));
    DeltaTable table = delta.Table();
    table.name = "table";
    LiveModel::Changes changes{"changes", {}, absl::MakeConstSpan(&table, 1), {}, {}};
    changes.header.first_epoch = first;
    changes.header.last_epoch = last;
    changes.header.previous = Chain(first - 1);
    changes.header.chain = Chain(last);
    return model.Apply(changes, give_up);
  }
  void ApplyAll(LiveModel& model, uint64_t from, uint64_t to) {
    for (uint64_t epoch = from; epoch <= to; ++epoch) ASSERT_TRUE(Apply(model, epoch, epoch).ok());
  }

  static void ExpectEpoch(const tensorflow::Tensor& pinned, uint64_t epoch) {
    const EpochView* view = nullptr;
    ASSERT_TRUE(ReadViewTensor(pinned, &view).ok());
    EXPECT_EQ(view->facts().epoch, epoch);
    for (uint32_t number = 1; number < kGroupRows; ++number) {
      const int64_t key = NumberedKey<int64_t>(number);
      uint32_t row = 0;
      view->table(0).FindRows(absl::MakeConstSpan(&key, 1), &row);
      std::vector<float> values(kOverlayDim), expected = FourFrom(static_cast<float>(epoch));
      std::memcpy(values.data(), view->table(0).overlay().rows() + size_t{row} * view->table(0).base().row_stride(),
                  4 * kOverlayDim);
      if (epoch == 0) expected = FourFrom(-static_cast<float>(number));
      if (number == epoch) continue;  // a default row
      ASSERT_EQ(values, expected) << "row " << number << " of epoch " << epoch;
    }
  }

  const TemporaryFolder folder_;
  std::shared_ptr<const EmbeddingTable> base_;
};

TEST_F(OverlayGroupTest, AnEpochIsWrittenOnceForAllModels) {
  const Model first = Make(base_), second = Make(base_), apart = Make(base_, "/other");
  ApplyAll(*first, 1, 3);
  ExpectEpoch(second->Pin(), 0);
  const uint64_t rows = first->status().changed_rows;
  ApplyAll(*second, 1, 2);
  ExpectEpoch(first->Pin(), 3);
  ExpectEpoch(second->Pin(), 2);
  EXPECT_EQ(first->status().changed_rows, rows);
  EXPECT_EQ(second->status().overlay_bytes, first->status().overlay_bytes);
  EXPECT_EQ(second->status().applied_rows, 2 * kGroupRows);
  ExpectEpoch(apart->Pin(), 0);
  EXPECT_EQ(apart->status().changed_rows, 0);
}

TEST_F(OverlayGroupTest, WhatTheSlowestModelReadsIsKept) {
  const Model first = Make(base_), second = Make(base_);
  ApplyAll(*first, 1, 2);
  ApplyAll(*second, 1, 2);
  const tensorflow::Tensor pinned = second->Pin();
  ApplyAll(*first, 3, 30);
  while (first->Compact(kLong)) {
  }
  ExpectEpoch(pinned, 2);
  ExpectEpoch(second->Pin(), 2);
  ASSERT_TRUE(second->RollBack(0).ok());
  ExpectEpoch(second->Pin(), 0);
  second->Resume();
  ApplyAll(*second, 3, 30);
  ExpectEpoch(second->Pin(), 30);
  ExpectEpoch(first->Pin(), 30);
}

TEST_F(OverlayGroupTest, ALateModelSharesFromAnEpochOnThatOthersKeep) {
  const Model first = Make(base_);
  ApplyAll(*first, 1, 30);
  while (first->Compact(kLong)) {
  }
  const Model late = Make(base_);
  ApplyAll(*late, 1, 20);
  ExpectEpoch(late->Pin(), 0);
  EXPECT_EQ(late->epochs().newest.epoch, 20);
  ApplyAll(*late, 21, 30);
  bool again = true;
  ASSERT_TRUE(late->Settle(&again).ok());
  EXPECT_FALSE(again);
  ExpectEpoch(late->Pin(), 30);
  ApplyAll(*late, 31, 31);
  ApplyAll(*first, 31, 31);
  ExpectEpoch(late->Pin(), 31);
  ExpectEpoch(first->Pin(), 31);
  EXPECT_EQ(first->status().overlay_bytes, late->status().overlay_bytes);
}

TEST_F(OverlayGroupTest, ALateModelThatCannotShareHasRowsOfItsOwn) {
  const Model first = Make(base_);
  ApplyAll(*first, 1, 30);
  while (first->Compact(kLong)) {
  }
  const Model late = Make(base_);
  ApplyAll(*late, 1, 5);
  bool again = false;
  ASSERT_TRUE(late->Settle(&again).ok());
  EXPECT_TRUE(again);
  EXPECT_EQ(late->epochs().newest.epoch, 0);
  ExpectEpoch(late->Pin(), 0);
  ApplyAll(*late, 1, 5);
  ExpectEpoch(late->Pin(), 5);
  ApplyAll(*late, 6, 31);
  while (late->Compact(kLong)) {
  }
  ExpectEpoch(late->Pin(), 31);
  ExpectEpoch(first->Pin(), 30);
}

TEST_F(OverlayGroupTest, ALateModelKeepsTheOldestEpochOfOthers) {
  const Model first = Make(base_);
  ApplyAll(*first, 1, 30);
  while (first->Compact(kLong)) {
  }
  const Model late = Make(base_);
  ApplyAll(*late, 1, 30 - LiveModel::kKeptEpochs);
  ExpectEpoch(late->Pin(), 30 - LiveModel::kKeptEpochs);
  // Others change overlays before it does so again.
  ApplyAll(*first, 31, 60);
  while (first->Compact(kLong)) {
  }
  ApplyAll(*first, 61, 70);
  ExpectEpoch(late->Pin(), 30 - LiveModel::kKeptEpochs);
}

TEST_F(OverlayGroupTest, ARequestOfAModelThatCameBackKeepsItsRows) {
  const Model first = Make(base_), second = Make(base_);
  ApplyAll(*first, 1, 3);
  while (first->Compact(kLong)) {
  }
  ApplyAll(*second, 1, 3);
  // It serves rows of its own, and then again those that it shares.
  ASSERT_TRUE(second->RollBack(0).ok());
  second->Compact(kLong);
  second->Resume();
  const tensorflow::Tensor pinned = second->Pin();
  const EpochView* view = nullptr;
  ASSERT_TRUE(ReadViewTensor(pinned, &view).ok());
  ASSERT_EQ(view->facts().epoch, 3);
  std::vector<int64_t> keys;
  for (uint32_t number = 4; number < kGroupRows; ++number) keys.push_back(NumberedKey<int64_t>(number));
  std::vector<uint32_t> rows(keys.size());
  view->table(0).FindRows(absl::MakeConstSpan(keys), rows.data());
  for (uint64_t epoch = 4; epoch <= 8; ++epoch) {
    ApplyAll(*first, epoch, epoch);
    while (first->Compact(kLong)) {
    }
  }
  for (const uint32_t row : rows) {
    float value = 0;
    std::memcpy(&value, view->table(0).overlay().rows() + size_t{row} * view->table(0).base().row_stride(),
                sizeof value);
    ASSERT_EQ(value, FourFrom(3).front()) << "row " << row;
  }
}

TEST_F(OverlayGroupTest, AModelIsControlledWhileAnotherChangesOverlays) {
  const Model model = Make(base_);
  ApplyAll(*model, 1, 3);
  LiveDescription description;
  description.chain = Chain(0);
  const std::shared_ptr<OverlayGroup> group = OverlayGroup::Of("/deltas", description);
  std::unique_lock<std::mutex> other(group->mutex());
  auto controlled = std::async(std::launch::async, [&] {
    EXPECT_TRUE(model->RollBack(1).ok());
    EXPECT_TRUE(model->status().held);
    EXPECT_TRUE(model->Compact(kLong)) << "it is left to do";
    ExpectEpoch(model->Pin(), 1);
    model->Resume();
    EXPECT_TRUE(model->SetPrecision("bf16").ok());
    EXPECT_EQ(model->epochs().served.epoch, 3);
    EXPECT_NE(model->status().changed_rows, 0);
    EXPECT_EQ(model->overlay_sizes().size(), 1);
  });
  EXPECT_EQ(controlled.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  // A thread must not try to lock a mutex that it has.
  int asked = 0;
  auto tried = std::async(std::launch::async, [&] { return Apply(*model, 4, 4, [&] { return ++asked == 3; }); });
  const absl::Status given_up = tried.get();
  EXPECT_EQ(given_up.code(), absl::StatusCode::kAborted) << given_up;
  EXPECT_EQ(model->epochs().newest.epoch, 3);
  std::atomic<int> waited{0};
  auto applied = std::async(std::launch::async, [&] { return Apply(*model, 4, 4, [&] { return ++waited == 0; }); });
  while (waited == 0 && applied.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
  }
  EXPECT_NE(waited, 0);
  other.unlock();
  controlled.get();
  const absl::Status status = applied.get();
  EXPECT_TRUE(status.ok()) << status;
  ExpectEpoch(model->Pin(), 4);
}

TEST_F(OverlayGroupTest, AModelThatMakesWeightsDoesNotStopOthers) {
  const Model first = Make(base_), slow = Make(base_);
  SlowWeights weights;
  ASSERT_TRUE(slow->SetPrecision("fp32").ok());
  const tensorflow::Tensor pinned = slow->Pin();
  const EpochView* view = nullptr;
  ASSERT_TRUE(ReadViewTensor(pinned, &view).ok());
  ASSERT_TRUE(weights.AddTo(*view).ok());
  std::thread load([&] { ApplyAll(*slow, 1, 1); });
  weights.WaitUntilBegun();
  auto applied = std::async(std::launch::async, [&] { ApplyAll(*first, 1, 3); });
  EXPECT_EQ(applied.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  weights.Release();
  load.join();
  applied.get();
  ExpectEpoch(first->Pin(), 3);
  ExpectEpoch(slow->Pin(), 1);
}

TEST_F(OverlayGroupTest, ModelsThatSkipEpochsMeetAtCommonOnes) {
  const Model first = Make(base_), second = Make(base_);
  ASSERT_TRUE(Apply(*first, 1, 3).ok());
  ApplyAll(*second, 1, 2);
  ExpectEpoch(second->Pin(), 0);
  ApplyAll(*second, 3, 4);
  ExpectEpoch(second->Pin(), 4);
  ExpectEpoch(first->Pin(), 3);
  ApplyAll(*first, 4, 4);
  ExpectEpoch(first->Pin(), 4);
}

TEST_F(OverlayGroupTest, OtherFilesAreNotShared) {
  const Model first = Make(base_), second = Make(Open("longer.emb", kGroupRows + 1));
  ApplyAll(*first, 1, 1);
  ApplyAll(*second, 1, 1);
  ExpectEpoch(first->Pin(), 1);
  ExpectEpoch(second->Pin(), 1);
  EXPECT_NE(first->status().changed_rows, 0);
  EXPECT_NE(second->status().changed_rows, 0);
}

TEST_F(OverlayGroupTest, EachModelIsReadAtOneEpochWhileAllApplyAndCompact) {
  constexpr uint64_t kEpochs = 60;
  const std::vector<Model> models = [this] {
    std::vector<Model> made;
    for (int i = 0; i < 3; ++i) made.push_back(Make(base_));
    return made;
  }();
  std::atomic<int> left{3};
  std::vector<std::thread> threads;
  for (const Model& model : models) {
    threads.emplace_back([&] {
      for (uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
        EXPECT_TRUE(Apply(*model, epoch, epoch).ok());
        model->Compact(std::chrono::microseconds(100));
      }
      --left;
    });
    threads.emplace_back([&] {
      while (left > 0) {
        const tensorflow::Tensor pinned = model->Pin();
        const EpochView* view = nullptr;
        ASSERT_TRUE(ReadViewTensor(pinned, &view).ok());
        ExpectEpoch(pinned, view->facts().epoch);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Model& model : models) ExpectEpoch(model->Pin(), kEpochs);
}

TEST_F(OverlayGroupTest, AModelThatEndsLeavesTheOthers) {
  Model first = Make(base_);
  const Model second = Make(base_);
  ApplyAll(*first, 1, 2);
  ApplyAll(*second, 1, 1);
  first.reset();
  ApplyAll(*second, 2, 30);
  while (second->Compact(kLong)) {
  }
  ExpectEpoch(second->Pin(), 30);
}

}  // namespace
}  // namespace processor
