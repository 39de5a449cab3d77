// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/batching/yield_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace processor {
namespace {

constexpr int64_t kSlowYieldNs = 10'000'000;  // far more than a request is worth

// Counts runs until one may yield; returns the number of those that may not.
int SkippedRuns(YieldPolicy* policy) {
  int skipped = 0;
  while (skipped < 100'000 && !policy->CountRun()) ++skipped;
  return skipped;
}

TEST(YieldPolicy, FirstRunMayYield) {
  YieldPolicy policy;
  EXPECT_TRUE(policy.CountRun());
}

TEST(YieldPolicy, EachRunMayYieldWhileYieldsBringRequests) {
  YieldPolicy policy;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(SkippedRuns(&policy), 0);
    policy.Learn(/*taken_ns=*/1000, /*requests=*/1);
  }
}

TEST(YieldPolicy, SkipsTwiceAsManyRunsAfterEachYieldWithoutGainUpToALimit) {
  YieldPolicy policy;
  int expected = 1;
  for (int i = 0; i < 12; ++i) {
    policy.Learn(kSlowYieldNs, 0);
    EXPECT_EQ(SkippedRuns(&policy), expected);
    expected = std::min(2 * expected, 512);
  }
}

TEST(YieldPolicy, YieldsAtEachRunAgainOnceYieldsBringRequests) {
  YieldPolicy policy;
  for (int i = 0; i < 5; ++i) policy.Learn(kSlowYieldNs, 0);
  ASSERT_GT(SkippedRuns(&policy), 1);
  policy.Learn(0, 10'000);
  EXPECT_EQ(SkippedRuns(&policy), 0);
  for (int i = 0; i < 100; ++i) policy.Learn(kSlowYieldNs, 0);
  EXPECT_EQ(SkippedRuns(&policy), 512);
}

}  // namespace
}  // namespace processor
