// SPDX-License-Identifier: Apache-2.0
#include "src/base/free_memory.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace processor {
namespace {

class FreeMemoryTest : public testing::Test {
 protected:
  FreeMemoryTest() { folder_.Write("proc/meminfo", "MemTotal: 90 kB\nMemFree: 5 kB\nMemAvailable:       50 kB\n"); }
  int64_t Free() const { return MemoryFree(folder_.path()); }
  TemporaryFolder folder_;
};

TEST_F(FreeMemoryTest, IsThatOfTheMachineWithoutCgroups) {
  EXPECT_EQ(Free(), 51200);
  EXPECT_GT(MemoryFree(), 0) << "of the machine that tests";
}

TEST_F(FreeMemoryTest, IsWhatTheFullestCgroupHasLeft) {
  folder_.Write("proc/self/cgroup", "0::/a/b\n");
  folder_.Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  folder_.Write("sys/fs/cgroup/a/b/memory.current", "40000\n");
  EXPECT_EQ(Free(), 51200);
  folder_.Write("sys/fs/cgroup/a/memory.max", "50000\n");
  folder_.Write("sys/fs/cgroup/a/memory.current", "41000\n");
  EXPECT_EQ(Free(), 9000);
  folder_.Write("sys/fs/cgroup/a/memory.stat", "anon 30000\ninactive_file 700\nactive_file 300\nfile 99999\n");
  EXPECT_EQ(Free(), 10000) << "caches of files can be given back";
  folder_.Write("sys/fs/cgroup/a/memory.current", "60000\n");
  EXPECT_EQ(Free(), 0);
}

TEST_F(FreeMemoryTest, KnowsVersionOneOfCgroups) {
  folder_.Write("proc/self/cgroup", "12:cpu,cpuacct:/x\n7:memory:/y\n");
  folder_.Write("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "30000\n");
  folder_.Write("sys/fs/cgroup/memory/y/memory.usage_in_bytes", "20000\n");
  folder_.Write("sys/fs/cgroup/memory/y/memory.stat", "total_inactive_file 1000\ntotal_active_file 2000\n");
  EXPECT_EQ(Free(), 13000);
}

}  // namespace
}  // namespace processor
