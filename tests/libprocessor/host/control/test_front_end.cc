// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/front_end.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

#include "src/runtime/stats/stats.h"

namespace processor {
namespace {

class FrontEndPlaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (allowed_.size() < 2) GTEST_SKIP() << "one CPU: nothing can be reserved";
    if (TimeOfThreads().empty()) GTEST_SKIP() << "this kernel does not tell what threads take";
  }

  // Time has passed in which threads of this process did next to nothing.
  void Place(FrontEnd& front_end, const CpuSet& reserved) { front_end.Place(reserved, now_ns_ += 3600 * kSecondNs); }

  const CpuSet allowed_ = AllowedCpus();
  const CpuSet first_ = {allowed_.front()};
  const CpuSet others_ = CpuSet(allowed_.begin() + 1, allowed_.end());
  int64_t now_ns_ = 0;
};

TEST_F(FrontEndPlaces, KeepsOffReservedCpus) {
  FrontEnd front_end(true);
  Place(front_end, {});
  EXPECT_EQ(CpusOfThread(getpid()), allowed_);
  Place(front_end, first_);
  EXPECT_EQ(front_end.cpus(), others_);
  EXPECT_EQ(CpusOfThread(getpid()), others_);
  EXPECT_EQ(AllowedCpus(), allowed_);
  Place(front_end, {});
  EXPECT_TRUE(front_end.cpus().empty());
  EXPECT_EQ(CpusOfThread(getpid()), allowed_);
}

TEST_F(FrontEndPlaces, RunsAnywhereIfAllCpusAreReserved) {
  FrontEnd front_end(true);
  Place(front_end, first_);
  ASSERT_EQ(front_end.cpus(), others_);
  Place(front_end, allowed_);
  EXPECT_EQ(CpusOfThread(getpid()), allowed_);
}

TEST_F(FrontEndPlaces, DestructorRestoresCpusOfThreads) {
  {
    FrontEnd front_end(true);
    Place(front_end, first_);
    EXPECT_EQ(CpusOfThread(getpid()), others_);
  }
  EXPECT_EQ(CpusOfThread(getpid()), allowed_);
}

TEST_F(FrontEndPlaces, DoesNotMoveOtherThreads) {
  FrontEnd front_end(false);
  Place(front_end, first_);
  Place(front_end, first_);
  EXPECT_TRUE(front_end.cpus().empty());
  EXPECT_EQ(CpusOfThread(getpid()), allowed_);
}

TEST_F(FrontEndPlaces, ABusyFrontEndReturnsToReservedCpusForAWhile) {
  FrontEnd front_end(true);
  Place(front_end, first_);
  ASSERT_EQ(front_end.cpus(), others_);
  // All the time that really passes is spent here.
  const auto busy = [](std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  busy(std::chrono::milliseconds(1100));
  front_end.Place(first_, now_ns_ += kSecondNs);
  EXPECT_TRUE(front_end.cpus().empty());
  EXPECT_EQ(CpusOfThread(getpid()), allowed_);
  front_end.Place(first_, now_ns_ += 10 * kSecondNs);
  EXPECT_TRUE(front_end.cpus().empty()) << "not at once";
  front_end.Place(first_, now_ns_ += 30 * kSecondNs);
  EXPECT_EQ(front_end.cpus(), others_);
}

TEST(FrontEnd, StaysRestrictedWithMoreUseThanItStartsWith) {
  EXPECT_TRUE(FrontEnd::KeepOff(false, {0.3, 0.3}, 1));
  EXPECT_FALSE(FrontEnd::KeepOff(false, {0.6, 0.3}, 1));
  EXPECT_TRUE(FrontEnd::KeepOff(true, {0.6, 0.3}, 1));
  EXPECT_FALSE(FrontEnd::KeepOff(true, {0.8, 0.3}, 1));
  EXPECT_TRUE(FrontEnd::KeepOff(true, {0.8, 0.3}, 2));
  // A single thread beside a busy session gets half a CPU of however many.
  EXPECT_FALSE(FrontEnd::KeepOff(true, {0.5, 0.95}, 20));
}

}  // namespace
}  // namespace processor
