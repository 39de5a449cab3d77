// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/cpu_mask.h"

#include <gtest/gtest.h>

#include <thread>

namespace processor {
namespace {

TEST(CpuMask, ContainsItsCpus) {
  const CpuMask mask(CpuSet{0, 3, 64, 1023});
  for (const int cpu : {0, 3, 64, 1023}) EXPECT_TRUE(mask.Contains(cpu)) << cpu;
  for (const int cpu : {-1, 1, 63, 65, 1022, 1024, 8191}) EXPECT_FALSE(mask.Contains(cpu)) << cpu;
}

TEST(CpuMask, ComparesSets) {
  const CpuMask all(CpuSet{0, 1, 70}), some(CpuSet{1, 70}), other(CpuSet{1, 2});
  EXPECT_TRUE(some.IsWithin(all));
  EXPECT_FALSE(all.IsWithin(some));
  EXPECT_TRUE((all & other) == CpuMask(CpuSet{1}));
  EXPECT_TRUE((some | other) == CpuMask(CpuSet{1, 2, 70}));
  EXPECT_TRUE(CpuMask().empty());
  EXPECT_FALSE(some.empty());
}

TEST(CpuMask, IsEmptyForCpusBeyondItsRoom) {
  EXPECT_TRUE(CpuMask(CpuSet{0, 1024}).empty());
  EXPECT_TRUE(CpuMask(CpuSet{8191}).empty());
}

TEST(CpuMask, ReadsAndMovesTheCallingThread) {
  std::thread([] {
    const CpuSet allowed = CpusOfThread(0);
    EXPECT_TRUE(CpuMask::OfCaller() == CpuMask(allowed));
    CpuMask(CpuSet{allowed.back()}).PinCaller();
    EXPECT_EQ(CpusOfThread(0), CpuSet{allowed.back()});
    CpuMask().PinCaller();
    EXPECT_EQ(CpusOfThread(0), CpuSet{allowed.back()}) << "an empty set moves nothing";
  }).join();
}

}  // namespace
}  // namespace processor
