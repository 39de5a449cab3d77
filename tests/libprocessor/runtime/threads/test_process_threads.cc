// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/process_threads.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <thread>
#include <utility>

#include "src/runtime/threads/placed_threads.h"
#include "src/runtime/threads/thread_slice.h"

namespace processor {
namespace {

class ProcessThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    if (allowed_.size() < 2) GTEST_SKIP() << "one CPU: nothing can be moved";
  }
  void TearDown() override { MoveThreads(allowed_); }

  const CpuSet allowed_ = AllowedCpus();
  const CpuSet last_ = {allowed_.back()};
};

// A thread that does as it is told.
class Servant {
 public:
  explicit Servant(std::function<void()> first)
      : thread_([this, first = std::move(first)] {
          first();
          id_.set_value(ThreadId());
          end_.get_future().wait();
        }) {}
  ~Servant() {
    end_.set_value();
    thread_.join();
  }
  int id() { return id_.get_future().get(); }

 private:
  std::promise<int> id_;
  std::promise<void> end_;
  std::thread thread_;
};

TEST_F(ProcessThreads, MovesAllThreadsExceptPlacedOnes) {
  Servant any([] {}), kept([] { KeepThreadInPlace(); });
  const int any_id = any.id(), kept_id = kept.id();
  MoveThreads(last_);
  EXPECT_EQ(CpusOfThread(any_id), last_);
  EXPECT_EQ(CpusOfThread(kept_id), allowed_);
  EXPECT_EQ(CpusOfThread(getpid()), last_);
  std::thread([&] { EXPECT_EQ(CpusOfThread(ThreadId()), last_) << "inherited"; }).join();
  MoveThreads(allowed_);
  EXPECT_EQ(CpusOfThread(any_id), allowed_);
  EXPECT_EQ(CpusOfThread(getpid()), allowed_);
}

TEST_F(ProcessThreads, RunSoonOnSharedCpus) {
  const int64_t usual = SliceOfThread(0);
  SetSlice(0, 300'000);
  if (usual == 0 || SliceOfThread(0) != 300'000) GTEST_SKIP() << "this kernel has no slices of threads";
  SetSlice(0, 0);
  EXPECT_EQ(SliceOfThread(0), usual);
  Servant any([] {});
  const int any_id = any.id();
  MoveThreads(last_);
  EXPECT_LT(SliceOfThread(any_id), usual);
  EXPECT_LT(SliceOfThread(getpid()), usual);
  Servant kept([] { KeepThreadInPlace(); });
  EXPECT_EQ(SliceOfThread(kept.id()), usual) << "inherited";
  MoveThreads(allowed_);
  EXPECT_EQ(SliceOfThread(any_id), usual);
  EXPECT_EQ(SliceOfThread(getpid()), usual);
}

TEST_F(ProcessThreads, MoveDoesNotChangeAllowedCpus) {
  EXPECT_TRUE(CurrentMove().to.empty());
  MoveThreads(last_);
  EXPECT_EQ(AllowedCpus(), allowed_);
  EXPECT_EQ(CurrentMove().to, last_);
  MoveThreads({allowed_.front()});
  EXPECT_EQ(AllowedCpus(), allowed_);
  MoveThreads(allowed_);
  EXPECT_TRUE(CurrentMove().to.empty());
}

TEST_F(ProcessThreads, FollowTasksetByAnotherProcess) {
  MoveThreads(last_);
  PinThread(static_cast<int>(getpid()), {allowed_.front()});
  EXPECT_EQ(AllowedCpus(), CpuSet{allowed_.front()});
  PinThread(static_cast<int>(getpid()), allowed_);
}

TEST_F(ProcessThreads, IdleThreadsAreNotMoved) {
  const int usual = getpriority(PRIO_PROCESS, static_cast<id_t>(getpid()));
  if (usual == 19) GTEST_SKIP() << "nothing is nicer than this process";
  Servant idle([] {
    const sched_param none{};
    sched_setscheduler(0, SCHED_IDLE, &none);
  });
  Servant nice([usual] { setpriority(PRIO_PROCESS, static_cast<id_t>(ThreadId()), usual + 1); });
  Servant elsewhere([this] { PinThread(0, {allowed_.front()}); });
  const int idle_id = idle.id(), nice_id = nice.id(), elsewhere_id = elsewhere.id();
  MoveThreads(last_);
  EXPECT_EQ(CpusOfThread(idle_id), allowed_);
  EXPECT_EQ(CpusOfThread(nice_id), allowed_);
  EXPECT_EQ(CpusOfThread(elsewhere_id), CpuSet{allowed_.front()});
  for (int thread : {idle_id, nice_id, elsewhere_id}) EXPECT_EQ(TimeOfThreads().count(thread), 0u);
}

TEST_F(ProcessThreads, KeptThreadReturnsToAllCpus) {
  MoveThreads(last_);
  Servant kept([] { KeepThreadInPlace(); });
  EXPECT_EQ(CpusOfThread(kept.id()), allowed_);
}

TEST_F(ProcessThreads, SessionThreadsRunOnAllAllowedCpus) {
  MoveThreads(last_);
  PlacedThreads anywhere({}), somewhere({allowed_.front()});
  std::thread([&] {
    anywhere.Join();
    EXPECT_EQ(CpusOfThread(ThreadId()), allowed_);
    anywhere.Leave();
  }).join();
  std::thread([&] {
    somewhere.Join();
    MoveThreads(last_);
    EXPECT_EQ(CpusOfThread(ThreadId()), CpuSet{allowed_.front()});
    somewhere.Leave();
  }).join();
}

TEST(TimeOfThreads, GrowsWhileAThreadRuns) {
  const std::map<int, ThreadTime> before = TimeOfThreads();
  if (before.empty()) GTEST_SKIP() << "this kernel does not tell";
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  while (std::chrono::steady_clock::now() < end) {
  }
  std::map<int, ThreadTime> now = TimeOfThreads();
  const ThreadTime mine = now.at(ThreadId()), then = before.at(ThreadId());
  EXPECT_GE(mine.ran_ns + mine.waited_ns - then.ran_ns - then.waited_ns, 25'000'000);
}

}  // namespace
}  // namespace processor
