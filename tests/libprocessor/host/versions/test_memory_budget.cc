// SPDX-License-Identifier: Apache-2.0
#include "src/host/versions/memory_budget.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "temporary_folder.h"

namespace processor {
namespace {

namespace fs = std::filesystem;

TEST(MemoryEstimate, CountsGraphVariablesAndTables) {
  TemporaryFolder folder;
  MemoryEstimate estimate;
  EXPECT_TRUE(absl::IsNotFound(EstimateMemory(folder.path() + "/nowhere", "", {}, &estimate)));
  folder.Write("saved_model.pb", std::string(10, 'g'));
  folder.Write("variables/variables.index", std::string(20, 'i'));
  folder.Write("variables/variables.data-00000-of-00001", std::string(300, 'v'));
  folder.Write("assets/words.txt", std::string(4000, 'w'));
  folder.Write("assets/" + std::string(64, 'a') + ".emb", std::string(50000, 't'));
  folder.Write("assets/other.emb", std::string(600000, 't'));
  folder.Write("assets.extra/recprocessor/manifest.json", std::string(7000000, 'm'));
  ASSERT_TRUE(EstimateMemory(folder.path(), "", {}, &estimate).ok());
  EXPECT_EQ(estimate.own_bytes, 4330);
  EXPECT_EQ(estimate.tables.size(), 2u);
  EXPECT_EQ(estimate.tables.at(std::string(64, 'a') + ".emb"), 50000);
  EXPECT_EQ(estimate.total(), 654330);

  TemporaryFolder checkpoints;
  checkpoints.Write("model.ckpt-1.data-00000-of-00001", std::string(500, 'v'));
  checkpoints.Write("model.ckpt-2.data-00000-of-00001", std::string(600, 'v'));
  ASSERT_TRUE(EstimateMemory(folder.path(), checkpoints.path(), {}, &estimate).ok());
  EXPECT_EQ(estimate.own_bytes, 2 * (10 + 600 + 4000)) << "two of those that are kept are loaded during a switch";
}

TEST(MemoryEstimate, CountsShardsAndSubFolders) {
  TemporaryFolder model, checkpoints;
  model.Write("saved_model.pb", std::string(10, 'g'));
  model.Write("assets/words/de/long.txt", std::string(1000, 'w'));
  checkpoints.Write("2026-11-22/checkpoint", "x");
  checkpoints.Write("2026-11-22/model.ckpt-7.index", std::string(5, 'i'));
  for (const char* shard : {"00000", "00001", "00002"}) {
    checkpoints.Write(std::string("2026-11-22/model.ckpt-7.data-") + shard + "-of-00003", std::string(200, 'v'));
  }
  checkpoints.Write("2026-11-21/model.ckpt-6.data-00000-of-00001", std::string(500, 'v'));
  MemoryEstimate estimate;
  ASSERT_TRUE(EstimateMemory(model.path(), checkpoints.path(), {}, &estimate).ok());
  EXPECT_EQ(estimate.own_bytes, 2 * (10 + 1000 + 605));
  fs::create_directory_symlink(checkpoints.path(), checkpoints.path() + "/circle");
  ASSERT_TRUE(EstimateMemory(model.path(), checkpoints.path(), {}, &estimate).ok());
  EXPECT_EQ(estimate.own_bytes, 2 * (10 + 1000 + 605));
}

TEST(MemoryEstimate, TieredTablesCountAsTheirMemory) {
  TemporaryFolder folder;
  folder.Write("saved_model.pb", std::string(10, 'g'));
  folder.Write("assets/" + std::string(64, 'a') + ".emb", std::string(9000, 't'));
  folder.Write("assets/" + std::string(64, 'b') + ".emb", std::string(1000, 't'));
  TableOptions tables;
  tables.tier = TableTier::kTiered;
  tables.memory = 2000;
  MemoryEstimate one, same, larger, mapped;
  ASSERT_TRUE(EstimateMemory(folder.path(), "", tables, &one).ok());
  ASSERT_TRUE(EstimateMemory(folder.path(), "", tables, &same).ok());
  EXPECT_EQ(one.total(), 2010);
  EXPECT_EQ(MemoryToAdd({&one}, same), 10) << "versions with equal caches share them";
  tables.memory = 4000;
  ASSERT_TRUE(EstimateMemory(folder.path(), "", tables, &larger).ok());
  EXPECT_EQ(MemoryToAdd({&one}, larger), 4010);
  tables.memory = 100000;
  ASSERT_TRUE(EstimateMemory(folder.path(), "", tables, &larger).ok());
  EXPECT_EQ(larger.total(), 10010);
  ASSERT_TRUE(EstimateMemory(folder.path(), "", {}, &mapped).ok());
  EXPECT_EQ(MemoryToAdd({&one}, mapped), 10010) << "nothing of a mapped table is shared with a tiered one";
}

TEST(MemoryEstimate, ResidentTablesCountOnceBesideMappedOnes) {
  TemporaryFolder folder;
  folder.Write("saved_model.pb", std::string(10, 'g'));
  folder.Write("assets/" + std::string(64, 'a') + ".emb", std::string(9000, 't'));
  TableOptions tables;
  tables.tier = TableTier::kResident;
  MemoryEstimate resident, mapped;
  ASSERT_TRUE(EstimateMemory(folder.path(), "", tables, &resident).ok());
  ASSERT_TRUE(EstimateMemory(folder.path(), "", {}, &mapped).ok());
  EXPECT_EQ(resident.total(), 9010);
  EXPECT_EQ(MemoryToAdd({&resident}, resident), 10);
  EXPECT_EQ(MemoryToAdd({&mapped}, resident), 9010);
}

TEST(MemoryEstimate, TablesCountOnce) {
  TemporaryFolder folder;
  const std::string hash(64, 'b');
  folder.Write("one/assets/" + hash + ".emb", std::string(1000, 't'));
  folder.Write("two/assets/" + hash + ".emb", std::string(1000, 't'));
  folder.Write("one/assets/plain.emb", std::string(200, 't'));
  fs::create_hard_link(folder.path() + "/one/assets/plain.emb", folder.path() + "/two/assets/called_otherwise.emb");
  folder.Write("two/saved_model.pb", std::string(30, 'g'));
  MemoryEstimate one, two;
  ASSERT_TRUE(EstimateMemory(folder.path() + "/one", "", {}, &one).ok());
  ASSERT_TRUE(EstimateMemory(folder.path() + "/two", "", {}, &two).ok());
  EXPECT_EQ(MemoryInUse({}), 0);
  EXPECT_EQ(MemoryInUse({&one}), 1200);
  EXPECT_EQ(MemoryInUse({&one, &two}), 1230);
  EXPECT_EQ(MemoryToAdd({&one}, two), 30);
  EXPECT_EQ(MemoryToAdd({}, two), 1230);
}

TEST(MemoryEstimate, ChangedRowsCountOnceForAllVersionsOfATimeline) {
  const int shared = 0, other = 0;
  MemoryEstimate one, two;
  one.own_bytes = 10;
  one.overlays = {{&shared, 500}, {&other, 3000}};
  two.own_bytes = 20;
  two.overlays = {{&shared, 600}};  // it was counted later
  EXPECT_EQ(one.total(), 3510);
  EXPECT_EQ(two.total(), 620);
  EXPECT_EQ(MemoryInUse({&one, &two}), 30 + 600 + 3000);
  EXPECT_EQ(MemoryToAdd({&two}, one), 3010);
}

class MachineTest : public testing::Test {
 protected:
  MachineTest() { folder_.Write("proc/meminfo", "MemFree: 5 kB\nMemTotal:       1000000 kB\nBuffers: 1 kB\n"); }
  int64_t Limit() const { return MemoryOfMachine(folder_.path()); }
  static int64_t LessATenth(int64_t bytes) { return bytes - bytes / 10; }
  TemporaryFolder folder_;
};

TEST_F(MachineTest, HasItsMemoryWithoutCgroups) {
  EXPECT_EQ(Limit(), LessATenth(1024000000));
  EXPECT_GT(MemoryOfMachine(), 0) << "of the machine that tests";
}

TEST_F(MachineTest, IsLimitedByTheLeastOfItsCgroups) {
  folder_.Write("proc/self/cgroup", "0::/a/b\n");
  folder_.Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(Limit(), LessATenth(1024000000));
  folder_.Write("sys/fs/cgroup/a/memory.max", "5000000\n");
  EXPECT_EQ(Limit(), LessATenth(5000000));
  folder_.Write("sys/fs/cgroup/a/b/memory.max", "4000000\n");
  EXPECT_EQ(Limit(), LessATenth(4000000));
  folder_.Write("sys/fs/cgroup/memory.max", "3000000\n");
  EXPECT_EQ(Limit(), LessATenth(3000000));
}

TEST_F(MachineTest, KnowsVersionOneOfCgroups) {
  folder_.Write("proc/self/cgroup", "12:cpu,cpuacct:/x\n7:memory:/y/z\n0::/\n");
  folder_.Write("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "6000000\n");
  EXPECT_EQ(Limit(), LessATenth(6000000));
  folder_.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Limit(), LessATenth(6000000)) << "no limit is a very large one";
}

}  // namespace
}  // namespace processor
