// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/maintenance.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>
#include <vector>

namespace processor {
namespace {

TEST(Maintenance, RunsJobsOnIdleCpus) {
  std::atomic<int> ended{0};
  int of_end = -1, nice_of_end = -1;
  Maintenance maintenance([&] {
    of_end = sched_getscheduler(0);
    nice_of_end = getpriority(PRIO_PROCESS, static_cast<id_t>(ThreadId()));
    ++ended;
  });
  EXPECT_FALSE(maintenance.busy());
  int policy = -1, nice = -1, of_servants = -1;
  ASSERT_TRUE(maintenance
                  .Start({},
                         [&] {
                           policy = sched_getscheduler(0);
                           nice = getpriority(PRIO_PROCESS, static_cast<id_t>(ThreadId()));
                           StartServingThreads([&] { of_servants = sched_getscheduler(0); });
                         })
                  .ok());
  maintenance.Wait();
  EXPECT_TRUE(policy == SCHED_IDLE || nice == 10) << "other tests may use all CPUs";
  EXPECT_EQ(of_servants, SCHED_OTHER);
  EXPECT_EQ(of_end, SCHED_OTHER) << "the control thread waits for it";
  EXPECT_EQ(nice_of_end, getpriority(PRIO_PROCESS, static_cast<id_t>(ThreadId())));
  EXPECT_EQ(ended, 1);
  EXPECT_FALSE(maintenance.busy());
}

TEST(Maintenance, GetsATenthOfACpuIfNoneIsIdle) {
  std::atomic<bool> done{false};
  std::vector<std::thread> busy;
  for (size_t i = 0; i < 2 * AllowedCpus().size(); ++i) {
    busy.emplace_back([&done] {
      while (!done.load()) {
      }
    });
  }
  int policy = -1, nice = -1, of_servants = -1;
  Maintenance maintenance([] {});
  const absl::Status status = maintenance.Start({}, [&] {
    policy = sched_getscheduler(0);
    nice = getpriority(PRIO_PROCESS, static_cast<id_t>(ThreadId()));
    StartServingThreads([&] { of_servants = getpriority(PRIO_PROCESS, static_cast<id_t>(ThreadId())); });
  });
  maintenance.Wait();
  done = true;
  for (std::thread& thread : busy) thread.join();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(policy, SCHED_OTHER);
  EXPECT_EQ(nice, 10);
  EXPECT_EQ(of_servants, getpriority(PRIO_PROCESS, 0));
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
