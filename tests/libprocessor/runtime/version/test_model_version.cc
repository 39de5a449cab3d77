// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/model_version.h"

#include <gtest/gtest.h>

#include <memory>

#include "src/runtime/version/warmup.h"
#include "tiny_saved_model.h"

namespace processor {
namespace {

class ModelVersionTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ParseModelConfig(R"({"warmup_runs": 1000})", ConfigDialect::kModern, &config_).ok());
    slots_ = std::make_unique<SessionSlots>(config_);
    source_.saved_model_dir = saved_model_.path();
  }

  TinySavedModel saved_model_;
  ModelConfig config_;
  std::unique_ptr<SessionSlots> slots_;
  VersionSource source_;
  Cancellation cancellation_;
  std::shared_ptr<ModelVersion> version_;
};

TEST_F(ModelVersionTest, LoadingStopsWhenTheVersionIsNoLongerDesired) {
  cancellation_.Request(absl::CancelledError("load: given up"));
  const absl::Status status =
      ModelVersion::Load(config_, source_, *slots_, /*background=*/true, cancellation_, &version_);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(version_, nullptr);
}

TEST_F(ModelVersionTest, WarmUpStopsWhenTheVersionIsNoLongerDesired) {
  ASSERT_TRUE(ModelVersion::Load(config_, source_, *slots_, /*background=*/false, cancellation_, &version_).ok());
  cancellation_.Request(absl::CancelledError("load: given up"));
  const absl::Status status = WarmUp(config_, "", /*num_sessions=*/1, cancellation_, *version_);
  EXPECT_TRUE(absl::IsCancelled(status)) << status << ", a request that fails is an outcome, but this is none";
  EXPECT_EQ(version_->warmup_outcome, "");
  const Cancellation wanted;
  EXPECT_TRUE(WarmUp(config_, "", /*num_sessions=*/1, wanted, *version_).ok());
  EXPECT_EQ(version_->warmup_outcome, "generated: 1000 runs on each session");
}

}  // namespace
}  // namespace processor
