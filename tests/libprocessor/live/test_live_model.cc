// SPDX-License-Identifier: Apache-2.0
#include "src/live/live_model.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "delta_fixture.h"
#include "slow_weights.h"
#include "table_file.h"
#include "temporary_folder.h"

namespace processor {
namespace {

constexpr int64_t kLiveRows = 40;
constexpr uint32_t kLiveDim = 4;
// For what must not wait at all, on a machine that is busy.
constexpr std::chrono::seconds kDeadline{20};

// A model of one table, whose rows are the number of the epoch, and of one slot of weights.
class LiveModelTest : public testing::Test {
 protected:
  void SetUp() override {
    TableFileContent content;
    content.index_kind = IndexKind::kInt64;
    content.dim = kLiveDim;
    content.rows = kLiveRows;
    for (int64_t key = 0; key < kLiveRows; ++key) content.keys.push_back(key);
    content.row_data = std::string(kLiveRows * kLiveDim * sizeof(float), '\0');
    std::shared_ptr<const EmbeddingTable> table;
    ASSERT_TRUE(EmbeddingTable::Open(folder_.Write("table.emb", content.Bytes()), &table).ok());
    LiveDescription description;
    description.tables.push_back({"t", DeltaKeyKind::kInt64, kLiveDim, {}});
    const absl::Status made = LiveModel::Create(std::move(description), {table}, {"t"}, nullptr, &model_);
    ASSERT_TRUE(made.ok()) << made;
    const auto make = [this](const EpochView& view, std::shared_ptr<const void>* object) {
      ++made_;
      *object = std::make_shared<const std::string>(absl::StrCat(view.precision(), " ", view.facts().epoch));
      return absl::OkStatus();
    };
    const auto slots = View(model_->Pin()).parts().slots;
    ASSERT_TRUE(slots->Add("tower", {{}, /*has_precision=*/true}, make, this, &slot_).ok());
  }

  absl::Status Apply(uint64_t epoch) {
    DeltaFixture<int64_t> rows;
    for (int64_t key = 0; key < kLiveRows; ++key) rows.changed[key].assign(kLiveDim, static_cast<float>(epoch));
    const DeltaTable table = [&] {
      DeltaTable made = rows.Table();
      made.name = "t";
      return made;
    }();
    LiveModel::Changes changes;
    changes.name = absl::StrCat("epoch ", epoch);
    changes.header.first_epoch = changes.header.last_epoch = epoch;
    const uint64_t previous = epoch - 1;
    std::memcpy(changes.header.previous.data(), &previous, sizeof previous);
    std::memcpy(changes.header.chain.data(), &epoch, sizeof epoch);
    changes.tables = absl::MakeConstSpan(&table, 1);
    return model_->Apply(changes);
  }

  static const EpochView& View(const tensorflow::Tensor& pinned) {
    const EpochView* view = nullptr;
    EXPECT_TRUE(ReadViewTensor(pinned, &view).ok());
    return *view;
  }

  // Returns "fp32 7" for the epoch 7 in fp32, after checking that all of it is of one epoch.
  std::string Read(const tensorflow::Tensor& pinned) const {
    const EpochView& view = View(pinned);
    for (int64_t key = 0; key < kLiveRows; ++key) {
      uint32_t row = 0;
      view.table(0).FindRows(absl::MakeConstSpan(&key, 1), &row);
      float value = 0;
      std::memcpy(&value, view.table(0).overlay().rows() + size_t{row} * view.table(0).base().row_stride(),
                  sizeof value);
      EXPECT_EQ(value, static_cast<float>(view.facts().epoch)) << "key " << key;
    }
    const void* weights = nullptr;
    EXPECT_TRUE(view.Weights(slot_, &weights).ok());
    const std::string found = absl::StrCat(view.precision(), " ", view.facts().epoch);
    // Epochs of one precision share what no formula has changed.
    const std::string& shared = *static_cast<const std::string*>(weights);
    EXPECT_EQ(shared.substr(0, shared.find(' ')), view.precision());
    return found;
  }

  const TemporaryFolder folder_;
  tensorflow::core::RefCountPtr<LiveModel> model_;
  std::atomic<int> made_{0};
  int slot_ = -1;
};

TEST_F(LiveModelTest, AllEpochsAreServedInTheNewPrecision) {
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) ASSERT_TRUE(Apply(epoch).ok());
  const tensorflow::Tensor before = model_->Pin();
  EXPECT_EQ(Read(before), " 3");
  const int made_before = made_;
  ASSERT_TRUE(model_->SetPrecision("fp32").ok());
  EXPECT_EQ(made_, made_before + 1) << "requests do not make the weights";
  EXPECT_EQ(Read(model_->Pin()), "fp32 3");
  EXPECT_EQ(Read(before), " 3") << "requests that have begun keep theirs";
  ASSERT_TRUE(model_->RollBack(1).ok());
  EXPECT_EQ(Read(model_->Pin()), "fp32 1");
  EXPECT_EQ(made_, made_before + 2);
  model_->Resume();
  ASSERT_TRUE(Apply(4).ok());
  EXPECT_EQ(Read(model_->Pin()), "fp32 4");
  // As long as it is pinned, an epoch keeps its rows although its view was replaced.
  for (uint64_t epoch = 5; epoch <= 30; ++epoch) ASSERT_TRUE(Apply(epoch).ok());
  EXPECT_EQ(Read(before), " 3");
}

TEST_F(LiveModelTest, AHeldEpochChangesItsPrecision) {
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) ASSERT_TRUE(Apply(epoch).ok());
  ASSERT_TRUE(model_->RollBack(2).ok());
  ASSERT_TRUE(model_->SetPrecision("bf16").ok());
  EXPECT_EQ(Read(model_->Pin()), "bf16 2");
  model_->Resume();
  EXPECT_EQ(Read(model_->Pin()), "bf16 3");
}

TEST_F(LiveModelTest, AnEpochInAnotherPrecisionIsApart) {
  ASSERT_TRUE(Apply(1).ok());
  tensorflow::Tensor other;
  ASSERT_TRUE(LiveModel::InPrecision(model_->Pin(), "fp32", &other).ok());
  EXPECT_EQ(made_, 0) << "its weights are made when they are asked for";
  for (uint64_t epoch = 2; epoch <= 30; ++epoch) ASSERT_TRUE(Apply(epoch).ok());
  EXPECT_EQ(Read(other), "fp32 1") << "it keeps its rows like an epoch that is pinned";
  EXPECT_EQ(Read(model_->Pin()), " 30");
}

TEST_F(LiveModelTest, TheStatusIsKnownWhileAnEpochIsMade) {
  ASSERT_TRUE(Apply(1).ok());
  ASSERT_TRUE(model_->SetPrecision("fp32").ok());
  const uint64_t bytes = model_->status().overlay_bytes;
  SlowWeights weights;
  ASSERT_TRUE(weights.AddTo(View(model_->Pin())).ok());
  std::thread apply([&] { EXPECT_TRUE(Apply(2).ok()); });
  weights.WaitUntilBegun();
  auto status = std::async(std::launch::async, [&] { return model_->status(); });
  auto sizes = std::async(std::launch::async, [&] { return model_->overlay_sizes(); });
  EXPECT_EQ(status.wait_for(kDeadline), std::future_status::ready);
  EXPECT_EQ(sizes.wait_for(kDeadline), std::future_status::ready);
  weights.Release();
  apply.join();
  const LiveModel::Status during = status.get();
  EXPECT_EQ(during.served.epoch, 1);
  EXPECT_EQ(during.newest.epoch, 1);
  EXPECT_EQ(during.applied_rows, kLiveRows);
  EXPECT_EQ(during.overlay_bytes, bytes);
  ASSERT_EQ(sizes.get().size(), 1);
  EXPECT_EQ(model_->status().newest.epoch, 2);
  EXPECT_EQ(model_->status().applied_rows, 2 * kLiveRows);
}

TEST_F(LiveModelTest, ReadersSeeOneEpochWhileOthersApplyRollBackAndChangeThePrecision) {
  constexpr uint64_t kEpochs = 3000;
  std::atomic<bool> done{false};
  const auto read = [&](bool apart) {
    while (!done.load()) {
      tensorflow::Tensor pinned = model_->Pin();
      if (apart) {
        ASSERT_TRUE(LiveModel::InPrecision(pinned, "fp32", &pinned).ok());
      }
      Read(pinned);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(read, i == 0);
  threads.emplace_back([&] {
    std::mt19937 random(1);
    while (!done.load()) {
      const LiveModel::Status status = model_->status();
      // All of it is of one point in time.
      EXPECT_EQ(status.applied_rows, status.newest.epoch * kLiveRows);
      EXPECT_LE(status.oldest_kept, status.served.epoch);
      EXPECT_TRUE(status.held || status.served.epoch == status.newest.epoch);
      EXPECT_EQ(std::memcmp(status.newest.chain.data(), &status.newest.epoch, sizeof status.newest.epoch), 0);
      switch (random() % 3) {
        case 0:
          model_->RollBack(status.oldest_kept).IgnoreError();  // it may be gone
          break;
        case 1:
          ASSERT_TRUE(model_->SetPrecision(random() % 2 == 0 ? "fp32" : "bf16").ok());
          break;
        default:
          model_->Resume();
      }
    }
  });
  for (uint64_t epoch = 1; epoch <= kEpochs;) {
    const absl::Status status = Apply(epoch);
    if (status.ok()) {
      ++epoch;
      continue;
    }
    ASSERT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;  // it is held
    model_->Resume();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace processor
