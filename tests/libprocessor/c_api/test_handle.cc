// SPDX-License-Identifier: Apache-2.0
#include "src/c_api/handle.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "src/runtime/config/model_config.h"
#include "tiny_saved_model.h"

namespace processor {
namespace {

class Handle : public testing::Test {
 protected:
  void SetUp() override {
    ModelConfig config;
    ASSERT_TRUE(
        ParseModelConfig(R"({"intra_op_parallelism_threads": 1, "warmup_runs": 1})", ConfigDialect::kModern, &config)
            .ok());
    const absl::Status status = Model::Load(std::move(config), saved_model_.path(), &model_);
    ASSERT_TRUE(status.ok()) << status;
  }

  TinySavedModel saved_model_;
  std::shared_ptr<Model> model_;
};

TEST_F(Handle, ReturnsItsModelUntilFreed) {
  processor_model* handle = MakeHandle(model_);
  std::shared_ptr<Model> found;
  ASSERT_TRUE(GetModel(handle, &found).ok());
  EXPECT_EQ(found, model_);
  found.reset();
  FreeHandle(handle);
  EXPECT_TRUE(absl::IsFailedPrecondition(GetModel(handle, &found)));
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(model_.use_count(), 1) << "the handle still holds the model";
  FreeHandle(handle);
  FreeHandle(nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(GetModel(nullptr, &found)));
}

TEST_F(Handle, IsNotReusedForFourThousandFrees) {
  processor_model* first = MakeHandle(model_);
  FreeHandle(first);
  std::shared_ptr<Model> found;
  for (int i = 0; i < 4000; ++i) {
    processor_model* handle = MakeHandle(model_);
    ASSERT_NE(handle, first) << i;
    FreeHandle(handle);
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(GetModel(first, &found)));
  // In the end memory is used again: loading for ever does not grow for ever.
  std::set<processor_model*> seen;
  for (int i = 0; i < 10000; ++i) {
    processor_model* handle = MakeHandle(model_);
    seen.insert(handle);
    FreeHandle(handle);
  }
  EXPECT_LT(seen.size(), 4200u);
}

TEST_F(Handle, OfAFreedModelNeverReturnsTheNextOne) {
  std::atomic<processor_model*> newest{MakeHandle(model_)};
  std::atomic<bool> ended{false}, mixed{false};
  std::thread reader([&] {
    while (!ended) {
      processor_model* const handle = newest;
      std::shared_ptr<Model> found;
      if (GetModel(handle, &found).ok() && found == nullptr) mixed = true;
      // Once a handle is freed, its place belongs to another model.
      if (newest != handle && GetModel(handle, &found).ok()) mixed = true;
    }
  });
  for (int i = 0; i < 2000; ++i) {
    processor_model* const before = newest;
    FreeHandle(before);
    newest = MakeHandle(model_);
  }
  ended = true;
  reader.join();
  EXPECT_FALSE(mixed);
  FreeHandle(newest);
}

TEST_F(Handle, IsSmallBecauseThousandsAreKept) { EXPECT_LE(sizeof(processor_model), 32u); }

TEST_F(Handle, RemembersTheBatchCountOfItsModel) {
  ModelConfig config;
  ASSERT_TRUE(
      ParseModelConfig(R"({"batch_process_count": 5, "warmup_runs": 1})", ConfigDialect::kModern, &config).ok());
  std::shared_ptr<Model> model;
  ASSERT_TRUE(Model::Load(std::move(config), saved_model_.path(), &model).ok());
  processor_model* handle = MakeHandle(std::move(model));
  EXPECT_EQ(BatchCount(handle), 5u);
  FreeHandle(handle);
  EXPECT_EQ(BatchCount(handle), 5u);
  EXPECT_EQ(BatchCount(nullptr), 1u);
}

TEST_F(Handle, OneOfManyFreesWinsAndUsersSeeIt) {
  processor_model* handle = MakeHandle(model_);
  model_.reset();
  std::atomic<int> served{0}, refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (;;) {
        std::shared_ptr<Model> model;
        const absl::Status status = GetModel(handle, &model);
        if (!status.ok()) {
          EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
          ++refused;
          return;
        }
        EXPECT_FALSE(model->StatsJson().empty());
        ++served;
      }
    });
  }
  while (served < 100) std::this_thread::yield();
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { FreeHandle(handle); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 8);
}

}  // namespace
}  // namespace processor
