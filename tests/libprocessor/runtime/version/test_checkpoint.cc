// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/checkpoint.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "temporary_folder.h"

namespace processor {
namespace {

namespace fs = std::filesystem;

// A folder as trainers write it; only names matter here.
class CheckpointFolder : public testing::Test {
 protected:
  void Touch(const fs::path& path) { folder_.Write(path.string(), "x"); }
  void Write(const std::string& folder, int step, int shards = 1) {
    const fs::path prefix = fs::path(folder) / ("model.ckpt-" + std::to_string(step));
    for (int i = 0; i < shards; ++i) Touch(prefix.string() + Shard(i, shards));
    Touch(prefix.string() + ".index");
    Touch(fs::path(folder) / "checkpoint");
  }
  static std::string Shard(int shard, int of) {
    char text[32];
    snprintf(text, sizeof text, ".data-%05d-of-%05d", shard, of);
    return text;
  }
  void Age(const std::string& folder, int minutes) {
    fs::last_write_time(root_ / folder, fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
  }
  Checkpoint Find() {
    Checkpoint checkpoint;
    const absl::Status status = FindCheckpoint(root_.string(), &checkpoint);
    EXPECT_TRUE(status.ok()) << status;
    return checkpoint;
  }

  const TemporaryFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(CheckpointFolder, IsNotFoundWithoutCheckpoints) {
  Checkpoint checkpoint;
  EXPECT_TRUE(absl::IsNotFound(FindCheckpoint((root_ / "absent").string(), &checkpoint)));
  EXPECT_TRUE(absl::IsNotFound(FindCheckpoint(root_.string(), &checkpoint)));
  Touch("checkpoint");
  const absl::Status status = FindCheckpoint(root_.string(), &checkpoint);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_NE(status.message().find(root_.string()), std::string::npos) << status;
}

TEST_F(CheckpointFolder, TakesTheLargestStepByNumber) {
  Write(".", 9);
  Write(".", 1000);
  Write(".", 200);
  const Checkpoint checkpoint = Find();
  EXPECT_EQ(checkpoint.step, 1000);
  EXPECT_EQ(fs::path(checkpoint.prefix).filename(), "model.ckpt-1000");
  EXPECT_EQ(checkpoint.incremental_step, -1);
  EXPECT_EQ(checkpoint.incomplete_step, -1);
}

TEST_F(CheckpointFolder, TakesTheNewestFolderNotTheLargestStep) {
  Write("run-a", 900);
  Write("run-b", 100);
  Age("run-a", 10);
  EXPECT_EQ(Find().step, 100);
  Age("run-b", 20);
  EXPECT_EQ(Find().step, 900);
}

TEST_F(CheckpointFolder, SkipsFoldersWithoutCheckpointFile) {
  Write("done", 10);
  Age("done", 10);
  Write("copying", 20);
  fs::remove(root_ / "copying" / "checkpoint");
  EXPECT_EQ(Find().step, 10);
}

TEST_F(CheckpointFolder, SkipsCheckpointsWithMissingShards) {
  Write(".", 10, 3);
  Write(".", 20, 3);
  fs::remove(root_ / ("model.ckpt-20" + Shard(1, 3)));
  const Checkpoint checkpoint = Find();
  EXPECT_EQ(checkpoint.step, 10);
  EXPECT_EQ(checkpoint.incomplete_step, 20);
  Touch("model.ckpt-20" + Shard(1, 3));
  EXPECT_EQ(Find().step, 20);
  EXPECT_EQ(Find().incomplete_step, -1);
}

TEST_F(CheckpointFolder, ShardsOfAnotherPrefixDoNotCount) {
  Write(".", 10);
  Touch("model.ckpt-1" + Shard(0, 1));
  Touch("model.ckpt-100" + Shard(0, 1));
  Touch("model.ckpt-100.index");
  EXPECT_EQ(Find().step, 100);
  Touch("model.ckpt-1000.index");
  EXPECT_EQ(Find().step, 100);
}

TEST_F(CheckpointFolder, IgnoresNamesWithoutStep) {
  Write(".", 5);
  for (const char* name : {"model.ckpt.index", "model.ckpt-.index", "model.ckpt-9x.index", "model.ckpt--9.index",
                           "model.ckpt-99999999999999999999.index", "model.ckpt-7.meta", ".index"}) {
    Touch(name);
  }
  EXPECT_EQ(Find().step, 5);
}

TEST_F(CheckpointFolder, TakesTheNewestCompleteIncrementalCheckpointAfterTheFullOne) {
  Write("run", 100);
  Write("run/.incremental_checkpoint", 90);
  EXPECT_EQ(Find().incremental_step, -1);
  EXPECT_EQ(Find().increment, "");
  Write("run/.incremental_checkpoint", 150);
  Write("run/.incremental_ckpt", 170);
  Touch("run/.incremental_checkpoint/model.ckpt-180.index");
  const Checkpoint checkpoint = Find();
  EXPECT_EQ(checkpoint.step, 100);
  EXPECT_EQ(checkpoint.incremental_step, 170);
  EXPECT_EQ(checkpoint.increment, (root_ / "run/.incremental_ckpt/model.ckpt-170").string());
  EXPECT_EQ(checkpoint.incomplete_step, 180);
  EXPECT_EQ(StepOfCheckpoint(checkpoint.increment), 170);
}

}  // namespace
}  // namespace processor
