// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/placed_threads.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <functional>
#include <thread>

#include "src/runtime/threads/process_threads.h"

namespace processor {
namespace {

class PlacedThreadsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (allowed_.size() < 2) GTEST_SKIP() << "one CPU: nothing can be moved";
  }

  // On a thread of its own, because a failed test would leave it on other CPUs.
  static void OnThread(const std::function<void()>& body) { std::thread(body).join(); }

  const CpuSet allowed_ = AllowedCpus();
  const CpuSet first_ = {allowed_.front()}, last_ = {allowed_.back()};
  PlacedThreads placed_{first_};
};

TEST_F(PlacedThreadsTest, VisitorsRunOnTheseCpusAndGetTheirOwnBack) {
  OnThread([&] {
    PlacedThreads::Visit visit;
    ASSERT_TRUE(placed_.BeginVisit(/*brief=*/false, &visit));
    EXPECT_EQ(CpusOfThread(0), first_);
    EXPECT_EQ(sched_getcpu(), first_.front());
    placed_.EndVisit(visit);
    EXPECT_EQ(CpusOfThread(0), allowed_);
  });
}

TEST_F(PlacedThreadsTest, VisitorsMoveWithTheOtherThreads) {
  OnThread([&] {
    PlacedThreads::Visit visit;
    ASSERT_TRUE(placed_.BeginVisit(/*brief=*/false, &visit));
    placed_.SetCpus(last_);
    EXPECT_EQ(CpusOfThread(0), last_);
    placed_.EndVisit(visit);
    EXPECT_EQ(CpusOfThread(0), allowed_);
    placed_.SetCpus(first_);
    EXPECT_EQ(CpusOfThread(0), allowed_) << "its visit has ended";
  });
}

TEST_F(PlacedThreadsTest, VisitorsThatAnotherProgramMovedStayThere) {
  OnThread([&] {
    PlacedThreads::Visit visit;
    ASSERT_TRUE(placed_.BeginVisit(/*brief=*/false, &visit));
    PinThread(0, last_);
    placed_.EndVisit(visit);
    EXPECT_EQ(CpusOfThread(0), last_);
  });
}

TEST_F(PlacedThreadsTest, VisitorsFollowTheThreadsOfTheProcess) {
  OnThread([&] {
    PlacedThreads::Visit visit;
    ASSERT_TRUE(placed_.BeginVisit(/*brief=*/false, &visit));
    MoveThreads(last_);
    placed_.EndVisit(visit);
    EXPECT_EQ(CpusOfThread(0), last_);
    placed_.SetCpus(allowed_);
    MoveThreads(allowed_);
    EXPECT_EQ(CpusOfThread(0), allowed_);
  });
}

TEST_F(PlacedThreadsTest, ThreadsOfOtherCpusAreNoVisitors) {
  OnThread([&] {
    PinThread(0, last_);
    PlacedThreads::Visit visit;
    EXPECT_FALSE(placed_.BeginVisit(/*brief=*/false, &visit));
    EXPECT_FALSE(placed_.BeginVisit(/*brief=*/true, &visit));
    EXPECT_EQ(CpusOfThread(0), last_);
  });
}

TEST_F(PlacedThreadsTest, ThreadsWithinTheseCpusAreNotMoved) {
  placed_.SetCpus(allowed_);
  OnThread([&] {
    PinThread(0, first_);
    PlacedThreads::Visit visit;
    ASSERT_TRUE(placed_.BeginVisit(/*brief=*/false, &visit));
    placed_.SetCpus(last_);
    EXPECT_EQ(CpusOfThread(0), first_);
    placed_.EndVisit(visit);
    EXPECT_EQ(CpusOfThread(0), first_);
  });
}

TEST_F(PlacedThreadsTest, BriefVisitsMoveOnlyThreadsThatRunElsewhere) {
  OnThread([&] {
    const auto visit_from = [&](const CpuSet& cpus) {
      PinThread(0, cpus);
      PinThread(0, allowed_);
      PlacedThreads::Visit visit;
      EXPECT_TRUE(placed_.BeginVisit(/*brief=*/true, &visit));
      EXPECT_EQ(visit.moved, CpusOfThread(0) == first_);
      placed_.EndVisit(visit);
      EXPECT_EQ(CpusOfThread(0), allowed_);
      return visit.moved;
    };
    // The kernel may move the thread in between.
    int moved_from_first = 0, moved_from_last = 0;
    for (int i = 0; i < 20; ++i) {
      moved_from_first += visit_from(first_) ? 1 : 0;
      moved_from_last += visit_from(last_) ? 1 : 0;
    }
    EXPECT_LT(moved_from_first, 10);
    EXPECT_GT(moved_from_last, 10);
  });
}

TEST_F(PlacedThreadsTest, ThreadsOfLowerPriorityAreNoVisitors) {
  OnThread([&] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, static_cast<id_t>(ThreadId()), 19), 0);
    PlacedThreads::Visit visit;
    EXPECT_FALSE(placed_.BeginVisit(/*brief=*/false, &visit));
  });
  OnThread([&] {
    const sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    PlacedThreads::Visit visit;
    EXPECT_FALSE(placed_.BeginVisit(/*brief=*/true, &visit));
  });
}

}  // namespace
}  // namespace processor
