// SPDX-License-Identifier: Apache-2.0
#include "src/host/versions/standing_queue.h"

#include <gtest/gtest.h>

namespace processor {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kBegin = 5'000'000 * kMs;

TEST(StandingQueue, APauseOfTheMachineIsNoStandingQueue) {
  StandingQueue queue;
  for (int64_t burst = 0; burst < 20; ++burst) {
    const int64_t begin = kBegin + burst * 120 * kMs;
    for (int64_t ms = 0; ms < 60; ms += 2) EXPECT_FALSE(queue.Look(true, begin + ms * kMs)) << burst << " " << ms;
    EXPECT_FALSE(queue.Look(false, begin + 60 * kMs));
  }
}

TEST(StandingQueue, StandsAfterAnIntervalOfLongQueues) {
  StandingQueue queue;
  for (int64_t ms = 0; ms < 100; ms += 2) EXPECT_FALSE(queue.Look(true, kBegin + ms * kMs)) << ms;
  EXPECT_TRUE(queue.Look(true, kBegin + 100 * kMs));
  EXPECT_TRUE(queue.Look(true, kBegin + 101 * kMs));
}

TEST(StandingQueue, AShortQueueAtOneLookDoesNotEndAStandingQueue) {
  StandingQueue queue;
  for (int64_t ms = 0; ms <= 100; ++ms) queue.Look(true, kBegin + ms * kMs);
  EXPECT_FALSE(queue.Look(false, kBegin + 110 * kMs));
  EXPECT_TRUE(queue.Look(true, kBegin + 900 * kMs));
  EXPECT_FALSE(queue.Look(false, kBegin + 1000 * kMs));
}

TEST(StandingQueue, IsForgottenAfterASecondWithoutALongLook) {
  StandingQueue queue;
  for (int64_t ms = 0; ms <= 100; ++ms) queue.Look(true, kBegin + ms * kMs);
  EXPECT_FALSE(queue.Look(true, kBegin + 1200 * kMs));
  EXPECT_FALSE(queue.Look(true, kBegin + 1250 * kMs));
  EXPECT_TRUE(queue.Look(true, kBegin + 1300 * kMs));
}

TEST(StandingQueue, LooksFarApartDoNotAddUp) {
  StandingQueue queue;
  EXPECT_FALSE(queue.Look(true, kBegin));
  EXPECT_FALSE(queue.Look(true, kBegin + 2000 * kMs));
  EXPECT_FALSE(queue.Look(true, kBegin + 4000 * kMs));
}

}  // namespace
}  // namespace processor
