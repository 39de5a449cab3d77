// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/batching/threads_by_cpu.h"

#include <gtest/gtest.h>

namespace processor {
namespace {

TEST(ThreadsByCpu, CountsEachCpuOnceToWhichThreadsReturn) {
  ThreadsByCpu threads;
  const int cpu = threads.Here();
  EXPECT_EQ(threads.num_cpus(), 0);
  threads.BeginReturn(cpu);
  threads.BeginReturn(cpu);
  EXPECT_EQ(threads.num_cpus(), 1);
  threads.EndReturn(cpu);
  EXPECT_TRUE(threads.AnyReturnTo(cpu));
  threads.EndReturn(cpu);
  EXPECT_FALSE(threads.AnyReturnTo(cpu));
  EXPECT_EQ(threads.num_cpus(), 0);
}

TEST(ThreadsByCpu, ThreadsThatLeadAreOnTheirCpuButDoNotReturnToIt) {
  ThreadsByCpu threads;
  const int cpu = threads.Here();
  threads.BeginRun(cpu);
  EXPECT_TRUE(threads.AnyOn(cpu));
  EXPECT_FALSE(threads.AnyReturnTo(cpu));
  threads.EndRun(cpu);
  EXPECT_FALSE(threads.AnyOn(cpu));
}

TEST(ThreadsByCpu, NoThreadIsOnACpuThatIsNone) {
  ThreadsByCpu threads;
  threads.BeginReturn(threads.Here());
  EXPECT_FALSE(threads.AnyOn(-1));
  EXPECT_FALSE(threads.AnyReturnTo(-1));
}

}  // namespace
}  // namespace processor
