// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/executor/step_runner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace processor {
namespace {

// A pool that starts a thread for each closure, or keeps them all waiting.
class Pool {
 public:
  ~Pool() {
    for (std::thread& thread : threads_) thread.join();
  }

  StepRunner::Runner Starting() {
    return [this](StepRunner::Closure closure) {
      std::lock_guard<std::mutex> lock(mutex_);
      ++calls_;
      threads_.emplace_back(std::move(closure));
    };
  }

  /// As one whose threads are all busy.
  StepRunner::Runner Busy() {
    return [this](StepRunner::Closure closure) {
      std::lock_guard<std::mutex> lock(mutex_);
      ++calls_;
      waiting_.push_back(std::move(closure));
    };
  }

  void BecomeFree() {
    for (StepRunner::Closure& closure : waiting_) closure();
    waiting_.clear();
  }

  int calls() {
    std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  int calls_ = 0;
  std::vector<std::thread> threads_;
  std::vector<StepRunner::Closure> waiting_;
};

TEST(StepRunner, MakesProgressWhileThePoolIsBusy) {
  Pool pool;
  const auto runner = std::make_shared<StepRunner>(pool.Busy());
  std::vector<int> order;
  for (int i = 0; i < 4; ++i) {
    runner->Schedule([&, i] {
      order.push_back(i);
      if (i == 3) runner->Schedule([&] { runner->Finish(); });
    });
  }
  runner->Help();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
  pool.BecomeFree();  // what it was asked for has been done
  EXPECT_EQ(order.size(), 4u);
}

TEST(StepRunner, LeavesOneClosureAtATimeToHelpingThread) {
  Pool pool;
  const auto runner = std::make_shared<StepRunner>(pool.Busy());
  const std::thread::id here = std::this_thread::get_id();
  int left = 2;
  const auto task = [&] {
    EXPECT_EQ(std::this_thread::get_id(), here);
    if (--left == 0) runner->Finish();
  };
  runner->Schedule(task);
  EXPECT_EQ(pool.calls(), 0);
  runner->Schedule(task);
  EXPECT_EQ(pool.calls(), 1);
  runner->Help();
  EXPECT_EQ(left, 0);
  pool.BecomeFree();
}

TEST(StepRunner, PoolRunsClosuresWhileHelpingThreadIsBusy) {
  Pool pool;
  const auto runner = std::make_shared<StepRunner>(pool.Starting());
  std::atomic<bool> other_ran{false};
  runner->Schedule([&] {
    // Like a kernel that waits for another: the pool has to run that.
    runner->Schedule([&] { other_ran = true; });
    while (!other_ran) std::this_thread::yield();
    runner->Finish();
  });
  runner->Help();
  EXPECT_TRUE(other_ran);
  EXPECT_EQ(pool.calls(), 1);
}

TEST(StepRunner, AnyThreadMayFinishTheStep) {
  Pool pool;
  for (int round = 0; round < 50; ++round) {
    const auto runner = std::make_shared<StepRunner>(pool.Starting());
    std::atomic<int> left{8};
    const auto task = [&] {
      if (--left == 0) runner->Finish();
    };
    for (int i = 0; i < 4; ++i) {
      runner->Schedule([&, task] {
        runner->Schedule(task);
        task();
      });
    }
    runner->Help();
    EXPECT_EQ(left, 0);
  }
}

TEST(StepRunner, ClosuresScheduledAfterTheStepRunInThePool) {
  Pool pool;
  bool ran = false;
  const auto runner = std::make_shared<StepRunner>(pool.Busy());
  runner->Finish();
  runner->Help();
  runner->Schedule([&] { ran = true; });
  EXPECT_FALSE(ran);
  pool.BecomeFree();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace processor
