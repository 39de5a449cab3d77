// SPDX-License-Identifier: Apache-2.0
#include "src/host/maintenance.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>

namespace processor {
namespace {

TEST(Maintenance, RunsJobsWhenNobodyElseHasWork) {
  std::atomic<int> ended{0};
  Maintenance maintenance([&] { ++ended; });
  EXPECT_FALSE(maintenance.busy());
  int policy = -1, of_servants = -1;
  ASSERT_TRUE(maintenance
                  .Start({},
                         [&] {
                           policy = sched_getscheduler(0);
                           StartServingThreads([&] { of_servants = sched_getscheduler(0); });
                         })
                  .ok());
  maintenance.Wait();
  EXPECT_EQ(policy, SCHED_IDLE);
  EXPECT_EQ(of_servants, SCHED_OTHER);
  EXPECT_EQ(ended, 1);
  EXPECT_FALSE(maintenance.busy());
}

TEST(Maintenance, RunsJobsOnTheirCpus) {
  Maintenance maintenance([] {});
  const int last = AllowedCpus().back();
  for (int i = 0; i < 3; ++i) {
    int policy = -1, cpu = -1;
    const auto job = [&] {
      policy = sched_getscheduler(0);
      cpu = sched_getcpu();
    };
    ASSERT_TRUE(maintenance.Start({last}, job).ok());
    maintenance.Wait();
    EXPECT_EQ(policy, SCHED_OTHER) << "they are its own";
    EXPECT_EQ(cpu, last);
  }
}

TEST(Maintenance, IsBusyUntilTheJobEnds) {
  std::atomic<bool> go{false};
  Maintenance maintenance([] {});
  ASSERT_TRUE(maintenance
                  .Start({},
                         [&] {
                           while (!go) std::this_thread::yield();
                         })
                  .ok());
  EXPECT_TRUE(maintenance.busy());
  go = true;
  maintenance.Wait();
  EXPECT_FALSE(maintenance.busy());
}

}  // namespace
}  // namespace processor
